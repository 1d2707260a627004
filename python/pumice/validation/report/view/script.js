"use strict";
// Strings from the JSON are only inserted as text nodes, so node names cannot become markup.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const make = (tag, text, attributes = {}) => {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const draw = (tag, attributes, text) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return made;
  };

  // Bins of validation/tensor_statistics.py.
  const MAGNITUDES = { first: -40, step: 2, marks: [[-24, "6e-8"], [-14, "6.1e-5"], [0, "1"], [16, "65504"]], limits: [-24, -14, 16] };
  const histogram = (counts, label, ticks, limits, over) => {
    const width = 440, height = 108, floor = 88, most = Math.max(...counts, 1);
    const chart = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    const step = width / counts.length;
    counts.forEach((count, i) => {
      if (!count) return;
      const tall = Math.max(3, (Math.log1p(count) / Math.log1p(most)) * (floor - 6));
      const bar = draw("rect", { x: i * step + 0.5, y: floor - tall, width: step - 1, height: tall, class: over(i) ? "bar over" : "bar" });
      bar.append(draw("title", {}, String(count)));
      chart.append(bar);
    });
    for (const at of limits) chart.append(draw("path", { d: `M${at * step} 2V${floor}`, class: "limit" }));
    chart.append(draw("path", { d: `M0 ${floor}H${width}`, stroke: "currentColor", "stroke-opacity": "0.4" }));
    for (const [at, text] of ticks) {
      const anchor = at <= 0 ? "start" : at >= counts.length ? "end" : "middle";
      chart.append(draw("text", { x: at * step, y: height - 6, class: "tick", "text-anchor": anchor }, text));
    }
    return chart;
  };
  const MOST_WAYS = 12; // listed predecessors and successors of the selected node
  const place = (octave) => (octave - MAGNITUDES.first) / MAGNITUDES.step;
  const magnitudes = (counts) => {
    const from = place(16);
    const ticks = MAGNITUDES.marks.map(([octave, text]) => [place(octave), text]);
    const label = "How many elements have which magnitude, against the limits of fp16";
    return histogram(counts, label, ticks, MAGNITUDES.limits.map(place), (i) => i >= from);
  };
  const ratios = (counts) => {
    const ticks = [[0.5, "0"], [2, "0.001"], [8.7, "0.1"], [12, "1"], [counts.length, "10 and more"]];
    return histogram(counts, "How many elements have which error over bound", ticks, [12], (i) => i >= 12);
  };

  const setUp = (report) => {
    const data = JSON.parse(report.querySelector("script[type='application/json']").textContent);
    const prefix = report.id;
    const table = report.querySelector("table.rows");
    const lines = [...table.querySelectorAll("tbody tr")];
    const panel = report.querySelector(".panel");
    const nodes = [...report.querySelectorAll(".graph .node")];
    const nodeOf = new Map();
    data.nodes.forEach((rows, i) => rows.forEach((row) => nodeOf.has(row) || nodeOf.set(row, i)));

    const showRow = (row) => {
      const one = data.rows[row];
      panel.append(make("h4", one.title));
      if (one.said) panel.append(make("p", one.said));
      const list = make("dl");
      for (const [name, value] of Object.entries(one.facts)) list.append(make("dt", name), make("dd", value));
      panel.append(list);
      if (one.ratios.some((count) => count)) panel.append(make("h5", "error over bound (elements, log scale)"), ratios(one.ratios));
      if (one.magnitudes.some((count) => count)) panel.append(make("h5", "magnitudes (elements, log scale)"), magnitudes(one.magnitudes));
      const link = make("a", "in the table of tensors", { href: `#${prefix}t${row}` });
      const line = make("p");
      line.append(link);
      panel.append(line);
    };
    const ways = (text, others) => {
      if (!others.length) return;
      const line = make("p", `${text}: `, { class: "ways" });
      for (const other of others.slice(0, MOST_WAYS)) {
        const button = make("button", nodes[other].getAttribute("aria-label"), { type: "button" });
        button.addEventListener("click", () => choose(other, true));
        line.append(button);
      }
      if (others.length > MOST_WAYS) line.append(`and ${others.length - MOST_WAYS} more`);
      panel.append(line);
    };
    const choose = (index, focus) => {
      const node = nodes[index];
      if (!node) return;
      for (const other of nodes) {
        other.classList.toggle("chosen", other === node);
        other.setAttribute("tabindex", other === node ? "0" : "-1");
      }
      const box = node.closest(".graph"), at = node.getBoundingClientRect(), frame = box.getBoundingClientRect();
      box.scrollBy(at.left + at.width / 2 - frame.left - frame.width / 2, at.top + at.height / 2 - frame.top - frame.height / 2);
      if (focus) node.focus({ preventScroll: true });
      panel.replaceChildren(make("h4", node.getAttribute("aria-label")));
      ways("reads", above[index]);
      ways("read by", below[index]);
      const rows = data.nodes[index];
      if (!rows.length) panel.append(make("p", "No tensor of it was judged."));
      rows.forEach(showRow);
    };

    const above = nodes.map(() => []), below = nodes.map(() => []);
    for (const [from, to] of data.edges) {
      above[to].push(from);
      below[from].push(to);
    }
    const beside = (index, step) => {
      const box = nodes[index].querySelector("rect"), y = box.getAttribute("y"), x = Number(box.getAttribute("x"));
      let best = -1, nearest = Infinity;
      nodes.forEach((node, i) => {
        const other = node.querySelector("rect"), far = (Number(other.getAttribute("x")) - x) * step;
        if (other.getAttribute("y") === y && far > 0 && far < nearest) [best, nearest] = [i, far];
      });
      return best;
    };
    nodes.forEach((node, index) => {
      node.addEventListener("click", () => choose(index, true));
      node.addEventListener("keydown", (event) => {
        const moves = {
          ArrowUp: () => above[index][0], ArrowDown: () => below[index][0],
          ArrowLeft: () => beside(index, -1), ArrowRight: () => beside(index, 1),
          Home: () => 0, End: () => nodes.length - 1, Enter: () => index, " ": () => index,
        };
        const target = moves[event.key]?.();
        if (event.key in moves) event.preventDefault();
        if (target >= 0) choose(target, true);
      });
    });

    for (const chart of report.querySelectorAll("svg.chart")) {
      const { left, right, count } = chart.dataset, [, , width, height] = chart.getAttribute("viewBox").split(" ").map(Number);
      const cursor = draw("path", { class: "cursor", d: "" }), title = draw("title", {});
      chart.append(cursor, title);
      const rowAt = (event) => {
        const box = chart.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * width;
        return Math.min(Math.max(Math.floor(((x - left) / (width - left - right)) * count), 0), count - 1);
      };
      chart.addEventListener("pointermove", (event) => {
        const row = rowAt(event), x = Number(left) + ((row + 0.5) * (width - left - right)) / count;
        cursor.setAttribute("d", `M${x} 10V${height - 34}`);
        title.textContent = data.rows[row].title;
      });
      chart.addEventListener("click", (event) => {
        const row = rowAt(event);
        if (nodeOf.has(row)) {
          choose(nodeOf.get(row), false);
          panel.scrollIntoView({ block: "nearest" });
        } else lines[row].scrollIntoView({ block: "center" });
      });
    }

    const bar = make("div", "", { class: "filter" });
    const search = make("input", "", { type: "search", placeholder: "part of a name or an operator", "aria-label": "filter tensors" });
    const only = make("input", "", { type: "checkbox" });
    const label = make("label");
    const shown = make("span", "", { role: "status" });
    label.append(only, " only what is not right");
    bar.append(search, label, shown);
    table.parentElement.before(bar);
    const filter = () => {
      const wanted = search.value.toLowerCase();
      let count = 0;
      for (const line of lines) {
        const kept = (!only.checked || line.className !== "right") && line.textContent.toLowerCase().includes(wanted);
        line.hidden = !kept;
        count += kept;
      }
      shown.textContent = `${count} of ${lines.length}`;
    };
    search.addEventListener("input", filter);
    only.addEventListener("change", filter);
    filter();

    const first = lines.findIndex((line) => line.className === "wrong");
    const start = nodeOf.get(first < 0 ? lines.findIndex((line) => line.className !== "right") : first);
    if (start !== undefined) choose(start, false);
  };

  // A report is set up when it is first opened, because a page may contain many.
  const ready = new WeakSet();
  const open = (report) => {
    if (report.open && !ready.has(report)) {
      ready.add(report);
      setUp(report);
    }
  };
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const report = target && target.closest("details.report");
    if (!report) return;
    report.open = true;
    open(report);
    target.hidden = false;
    target.scrollIntoView();
  };
  for (const report of document.querySelectorAll("details.report")) {
    report.addEventListener("toggle", () => open(report));
    open(report);
  }
  addEventListener("hashchange", reveal);
  reveal();
})();
