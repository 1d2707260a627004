"""The tests of the quick tier: one of each operator and page, and a few of each public entry point. See tiers.py."""

from __future__ import annotations

OPERATORS = "operators/test_operators.py"
OPERATOR_TEST = "test_operator_is_right"
ALL = 10**6

# Number of cases. ALL: every case of the default tier.
QUICK: dict[str, dict[str, int]] = {
    "binding/test_binding_rules.py": {
        "test_every_rule_that_an_error_can_name_is_in_the_list_and_the_list_has_no_other": ALL,
        "test_names_bind_all_at_once": ALL,
        "test_after_every_rejection_a_valid_bind_and_run_succeeds": ALL,
    },
    "binding/test_command_list.py": {
        "test_a_kernel_runs_on_arrays_by_name": ALL,
        "test_a_list_replays_and_derives_its_barriers": ALL,
    },
    "binding/test_graph_operator.py": {"test_a_graph_runs_through_tables": 1},
    "control_flow/test_control_flow.py": {
        "test_an_if_runs_the_branch_of_its_condition": ALL,
        "test_a_loop_runs_as_often_as_its_condition_says": ALL,
    },
    "device/test_cache.py": {"test_damaged_shaders_are_compiled_anew": ALL},
    "device/test_device.py": {
        "test_a_device_is_found_by_uuid_index_kind_and_part_of_its_name": ALL,
        "test_bytes_survive_the_trip_through_a_buffer": ALL,
    },
    "device/test_visible_devices.py": {"test_an_index_counts_the_visible_devices": ALL},
    "dv/test_dv_convert.py": {
        "test_weights_may_be_indices_of_8_bits": ALL,
        "test_the_c_library_gives_the_same_bits": ALL,
    },
    "dv/test_dv_library.py": {"test_list_calls": ALL, "test_memory_calls": ALL},
    "dv/test_dv_objects.py": {"test_a_context_reports_what_it_is": 1},
    "dv/test_dv_programs.py": {"test_a_program_in_c99": ALL},
    "graph/test_fusions.py": {"test_the_later_of_two_matmuls_reads_the_earlier": ALL, "test_each_fusion_alone": 4},
    "graph/test_graph.py": {
        "test_shapes_are_known_node_by_node": ALL,
        "test_a_wrong_node_is_rejected_by_name": ALL,
    },
    "graph/test_program.py": {
        "test_a_program_runs_for_every_shape_it_is_called_with": ALL,
        "test_maps_of_several_types_become_one": ALL,
        "test_integers_are_exact_at_every_precision": ALL,
    },
    "kernel/test_image_kernels.py": {"test_a_dispatch_waits_for_the_image_that_another_writes": ALL},
    "kernel/test_kernel.py": {
        "test_vectors_arrays_matrices_and_structures_arrive": ALL,
        "test_a_body_makes_a_kernel_that_returns_its_output": ALL,
        "test_a_wrong_argument_of_a_kernel_is_named": ALL,
    },
    "kernel/test_kernel_files.py": {"test_an_include_is_looked_for_beside_the_file": ALL},
    "kernel/test_kernel_tuning.py": {"test_nothing_is_measured_twice": ALL},
    "kernel/test_launch_from_device.py": {"test_a_call_runs_so_many_groups": ALL},
    "kernel/test_spirv_kernels.py": {"test_a_module_runs_as_its_source_does": ALL},
    "model/test_batch_predictor.py": {"test_batches_are_mapped_in_their_order_and_form": ALL},
    "model/test_images.py": {"test_pictures_are_prepared_to_the_bit": ALL},
    "model/test_model.py": {
        "test_several_outputs_by_position_name_and_attribute": ALL,
        "test_inputs_by_name_in_any_order_and_mixed": ALL,
        "test_a_wrong_argument_is_named_and_the_model_goes_on": ALL,
        "test_asynchronous_runs": ALL,
    },
    "model/test_model_files.py": {"test_weights_that_are_gone_are_named": ALL},
    "model/test_parallel_model.py": {"test_both_devices_work": ALL},
    "model/test_policy.py": {"test_a_file_says_it": ALL},
    "model/test_torch_compile.py": {"test_tensors_go_to_torch_and_back_by_dlpack": ALL},
    "model/test_torch_operators.py": {"test_an_operator_runs_its_kernel": ALL},
    "nnapi/test_nnapi_control_flow.py": {"test_IF_takes_a_condition_two_graphs_and_inputs": ALL},
    "nnapi/test_nnapi_elementwise.py": {
        "test_integer_arithmetic": 4,
        "test_functions_of_one_float": ALL,
        "test_quantize_and_dequantize": ALL,
        "test_casts_among_numbers": ALL,
    },
    "nnapi/test_nnapi_errors.py": {"test_what_does_not_fit_is_rejected_by_rule_and_text": ALL},
    "nnapi/test_nnapi_matmul_conv.py": {"test_convolutions": ALL, "test_pools": ALL},
    "onnx/test_contrib_operators.py": {
        "test_the_same_as_onnx_runtime": ALL,
        "test_what_is_not_known_is_rejected_by_name": ALL,
    },
    "onnx/test_corpus.py": {"test_a_model_gives_what_onnx_runtime_gives": 3},
    "onnx/test_onnx_control_flow.py": {"test_a_loop_of_known_shapes_is_counted_on_the_device": ALL},
    "onnx/test_onnx_files.py": {"test_functions_in_functions_with_attributes_given_and_not": ALL},
    "onnx/test_onnx_import.py": {
        "test_paths_bytes_and_protos_are_the_same": ALL,
        "test_a_broken_rule_is_named": ALL,
    },
    "onnx/test_onnx_strings.py": {"test_branches_give_strings": ALL},
    "onnx/test_sequences.py": {"test_split": ALL},
    OPERATORS: {OPERATOR_TEST: ALL},
    "profiling/test_memory.py": {"test_a_profile_has_the_maps_of_the_models_that_ran": ALL},
    "profiling/test_profile.py": {
        "test_the_spans_of_an_execution_are_all_of_it": 1,
        "test_kernels_and_lists_are_profiled": ALL,
    },
    "project/test_dev.py": {"test_help_lists_every_command": ALL},
    "project/test_documents.py": {
        "test_the_first_script_of_a_page_runs": ALL,
        "test_the_reference_has_every_public_name_once": ALL,
    },
    "project/test_layers.py": {"test_each_layer_includes_only_layers_to_its_left": ALL},
    "project/test_package.py": {
        "test_stub_is_current": ALL,
        "test_entry_points_are_importable": ALL,
        "test_import_prints_nothing_and_loads_neither_onnx_nor_a_driver": ALL,
    },
    "project/test_readme.py": {"test_scripts_run_in_order": ALL},
    "project/test_tiers.py": {"test_every_entry_is_a_test": ALL},
    "shader/test_glsl_names.py": {"test_device_macros_describe_the_device": ALL},
    "shader/test_shader_printf.py": {"test_doubles_and_float16_print": ALL},
    "tensor/test_dlpack_capsules.py": {"test_the_fields_unchanged_are_read": ALL},
    "tensor/test_tensor.py": {
        "test_elements_go_to_the_device_and_back": ALL,
        "test_indexing_gives_the_views_that_numpy_gives": ALL,
        "test_writing_to_a_view_writes_its_elements_alone": ALL,
    },
    "tensor/test_tensor_arithmetic.py": {"test_in_place_other_views_of_the_memory_see_it": ALL},
    "tensor/test_transfers.py": {"test_uploads_and_downloads_follow_the_work_in_flight": ALL},
    "text/test_chat.py": {"test_tokens_of_a_template_are_a_prompt": ALL},
    "text/test_sampling.py": {"test_seeds_and_positions_give_other_tokens": ALL},
    "text/test_sessions.py": {
        "test_the_example_tells_a_story": ALL,
        "test_turns_go_on_where_the_last_ended": ALL,
    },
    "tools/test_catalogue.py": {"test_a_schema_lists_all_that_the_table_knows": ALL},
    "tools/test_cli.py": {
        "test_info_names_the_devices_and_the_one_that_is_taken": ALL,
        "test_run_as_json": ALL,
        "test_bench_as_json": ALL,
        "test_validate_prints_a_table": ALL,
        "test_the_command_runs_as_a_module": ALL,
    },
    "tools/test_doctor.py": {"test_this_machine_is_looked_at": ALL},
    "tools/test_notebook_extension.py": {"test_a_cell_becomes_a_kernel": ALL, "test_models_and_reports": ALL},
    "tools/test_validate_command.py": {"test_stored_outputs_are_checked": ALL},
    "validation/test_explain.py": {"test_an_index_out_of_range_is_explained": ALL},
    "validation/test_needless_unproved.py": {"test_an_error_of_what_is_proved_is_found": 4},
    "validation/test_pytest_plugin.py": {"test_fixtures_and_a_line_that_names_the_device": ALL},
    "validation/test_pytest_matrix.py": {"test_tests_run_in_every_cell": ALL},
    "validation/test_repeat.py": {"test_the_same_bits_are_reported_too": ALL},
    "validation/test_report_files.py": {"test_files_of_a_report": ALL},
    "validation/test_testing.py": {"test_defaults_follow_the_less_precise_type": ALL},
    "validation/test_tuner.py": {"test_a_policy_is_saved_as_json": ALL},
    "validation/test_validate.py": {
        "test_a_right_model_passes": ALL,
        "test_the_first_wrong_node_is_named_with_its_error": ALL,
    },
}
