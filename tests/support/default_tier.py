"""Sample the cases of large sweeps for the default tier. --all runs every case.

Cases are chosen by a hash of their ids, so that every run and worker has the same ones. Add a function here if its cases take more than
about 20 seconds on two cores and differ only in shapes, dtypes or precisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pytest

ONE_MODE = 0  # one mode per case: cases are grouped by the id before its last hyphen

CASES_OF = {
    "device/test_driver_quirks.py::test_attention_is_right_wherever_matrices_have_their_components": 4,
    "dv/test_dv_convert.py::test_networks_give_what_the_engine_gives": 13,
    "dv/test_dv_convolution.py::test_each_activation_of_a_convolution": 14,
    "graph/test_elementwise_epilogues.py::test_what_follows_a_result_is_applied_to_all_of_it": 16,
    "graph/test_fusions.py::test_a_second_tensor_is_read_as_the_result_is_stored": 10,
    "graph/test_attention_masks.py::test_decomposed_attention_of_padded_sentences": 24,
    "graph/test_attention_masks.py::test_softmax_of_masked_rows": 40,
    "graph/test_remove_widening_casts.py::test_the_bits_are_those_of_casts_beside_the_operator": 120,
    "graph/test_remove_widening_casts.py::test_what_makes_a_residual_stays_where_its_cast_is_read_over": 8,
    "graph/test_norm_residuals.py::test_random_skips_are_added_by_the_normalisation": 12,
    "graph/test_random_expressions.py::test_expressions_have_the_bits_of_their_operations_one_by_one": 1,
    "graph/test_recognition.py::test_attention_becomes_one_dispatch": 10,
    "graph/test_fuse_bidirectional_rnn.py::test_results_are_made_side_by_side": 8,
    "graph/test_fuse_bidirectional_rnn.py::test_states_and_results_of_each_direction_are_read_and_made_apart": 12,
    "graph/test_trial_sizes.py::test_results_are_the_same_whatever_sizes_are_tried": 3,
    "model/test_large_arrays.py::test_a_map_gives_what_calls_give": 4,
    "model/test_models.py::test_another_image_size": 2,
    "model/test_models.py::test_every_node_is_right": 3,
    "model/test_models.py::test_the_stored_result": 12,
    "model/test_step_tuning.py::test_every_variant_that_a_step_can_take_is_right": 2,
    "nnapi/test_nnapi_detection.py::test_N17_2_to_N17_4_peaks": 8,
    "nnapi/test_nnapi_lstm.py::test_N2_3_and_L2_to_L5_a_step": 6,
    "nnapi/test_nnapi_lstm.py::test_N6_3_both_directions_of_as_many_units_are_one_node": 12,
    "nnapi/test_nnapi_lsh_projection.py::test_N18_3_and_N18_4_every_form_and_type": 3,
    "nnapi/test_nnapi_int8_lstm.py::test_N3_4_to_N3_10_bit_by_bit": 4,
    "onnx/test_corpus.py::test_a_model_gives_what_onnx_runtime_gives": 60,
    "operators/test_attention_past_lengths.py::test_nor_in_the_kernels_of_gpus": 6,
    "operators/test_attention_past_lengths.py::test_rows_past_the_length_change_no_bit": 10,
    "operators/test_attention_mma.py::test_tilings_are_right_with_emulated_tensor_cores": 4,
    "operators/test_attention_decode_mma.py::test_rows_are_right_with_emulated_tensor_cores": 2,
    "operators/test_gemv_quant.py::test_gate_and_norm_are_fused_into_the_matmul": 8,
    "operators/test_gemv_quant.py::test_matmuls_are_exact": 6,
    "operators/test_gemm_quant_mma.py::test_floats_have_the_layout_of_a_gemm": 3,
    "operators/test_gemm_quant_mma.py::test_matmuls_are_exact": 5,
    "operators/test_gemm_quant_mma.py::test_programs_take_them_and_floats_of_them": 6,
    "operators/test_buffer_ranges.py::test_each_of_these_cases_has_a_tensor_larger_than_the_range": 40,
    "operators/test_buffer_ranges.py::test_tensors_larger_than_a_range_are_split": 80,
    "operators/test_instance_norm_nhwc.py::test_channels_are_normalised": 8,
    "operators/test_computed_weights.py::test_convolutions_and_matmuls_take_weights_that_are_computed": 2,
    "operators/test_conv_halo.py::test_convolutions_are_within_the_reported_error": 12,
    "operators/test_conv_mma.py::test_convolutions_are_within_the_reported_error": 6,
    "operators/test_conv_few_channels.py::test_convolutions_are_within_the_reported_error": 16,
    "operators/test_convolution_variants.py::test_variants_of_a_convolution_are_right": 6,
    "operators/test_gemm_small_m.py::test_small_m_matmuls_in_every_matrix_layout": 12,
    "operators/test_gemm_small_m.py::test_matmuls_with_low_bit_weights": 80,
    "operators/test_grid.py::test_operators_are_whole_where_every_grid_is_folded": 80,
    "operators/test_grid.py::test_operators_work_within_what_every_device_has": 80,
    "operators/test_operator_activations.py::test_an_activation_is_the_operator_of_its_name": 4,
    "operators/test_operator_precision.py::test_an_operator_computes_at_its_precision_what_a_graph_of_it_does": 120,
    "operators/test_operators.py::test_operator_is_right": ONE_MODE,
    "operators/test_fuse_max_pool.py::test_lesser_devices": 4,
    "operators/test_fuse_max_pool.py::test_pooled_is_what_two_dispatches_make": 8,
    "operators/test_fuse_max_pool.py::test_random_convolutions_give_what_two_dispatches_give": 6,
    "operators/test_gemm_split_fp16.py::test_matmuls_are_within_the_reported_error": 8,
    "operators/test_gemm_split_fp16.py::test_rows_of_any_values_match_float32_matmuls": 6,
    "operators/test_quantized_kv_cache.py::test_rows_are_right_on_tensor_cores": 1,
    "shader/test_shader_bounds.py::test_a_copy_from_out_of_bounds_gives_zeros_and_one_to_there_nothing": 24,
    "tensor/test_casts.py::test_every_dtype_becomes_every_other": 60,
    "tensor/test_tensor_writing.py::test_dtypes_convert_on_the_device": 36,
    "text/test_int8_kv_cache.py::test_the_first_layer_stores_its_rows_to_half_a_level": 5,
    "text/test_nan_in_kv_cache.py::test_proposals_that_are_no_numbers_change_nothing": 6,
    "text/test_nan_in_kv_cache.py::test_rows_that_were_taken_back_are_not_seen": 8,
    "validation/test_no_false_alarms.py::test_eight_units_in_one_element_are_found_in_95_of_100_nodes": 1,
    "validation/test_nnapi_bounds.py::test_hashes_are_exact": 4,
    "validation/test_peak_memory.py::test_twice_the_largest_activations_are_kept": 4,
    "validation/test_policy_validation.py::test_what_the_tuner_repairs_is_proved_right": 5,
    "validation/test_tuner.py::test_models_that_break_in_fp16_are_repaired": 5,
    "validation/test_tuner.py::test_fp32_matmuls_run_on_tensor_cores_within_bounds": 1,
}


def _order(item: pytest.Item) -> bytes:
    return hashlib.sha256(item.nodeid.encode()).digest()


def _kept(items: list[pytest.Item], count: int) -> Iterable[pytest.Item]:
    if count != ONE_MODE:
        return sorted(items, key=_order)[:count]
    first: dict[str, pytest.Item] = {}
    for item in sorted(items, key=_order):
        first.setdefault(item.name.rpartition("-")[0], item)
    return first.values()


def mark_slow(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that the default tier skips as slow."""
    sweeps: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        if name in CASES_OF and item.get_closest_marker("slow") is None:
            sweeps.setdefault(name, []).append(item)
    for name, cases in sweeps.items():
        kept = {id(item) for item in _kept(cases, CASES_OF[name])}
        for item in cases:
            if id(item) not in kept:
                item.add_marker(pytest.mark.slow)
