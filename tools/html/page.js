// SPDX-License-Identifier: MIT
// Draws the charts of a report from the JSON beside it. Texts go in by textContent and attributes only, never as markup.
"use strict";
(function () {
	const data = JSON.parse(document.getElementById("data").textContent) || {};
	const by = (id) => document.getElementById(id);
	const svgNamespace = by("ns").namespaceURI;

	function put(node, attributes, children) {
		for (const name in attributes || {})
			if (attributes[name] !== null && attributes[name] !== undefined)
				node.setAttribute(name, attributes[name]);
		for (const child of [].concat(children === undefined ? [] : children))
			if (child !== null)
				node.append(child);
		return node;
	}
	const make = (tag, attributes, children) => put(document.createElement(tag), attributes, children);
	const draw = (tag, attributes, children) => put(document.createElementNS(svgNamespace, tag), attributes, children);
	const thousands = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",");
	function short(v) {
		if (v === null || v === undefined) return "-";
		if (!isFinite(v)) return v > 0 ? "Inf" : "-Inf";
		const a = Math.abs(v);
		return a !== 0 && (a < 1e-3 || a >= 1e5) ? v.toExponential(1).replace("e+", "e") : String(Number(v.toPrecision(3)));
	}
	function tiny(v) { // at most five characters
		if (v === null || !isFinite(v)) return v === null ? "" : "Inf";
		if (v === 0) return "0";
		if (v < 0.01) return "<.01";
		if (v < 10) return v.toFixed(2);
		if (v < 1000) return v.toFixed(0);
		if (v < 1e5) return (v / 1e3).toFixed(0) + "k";
		return v.toExponential(0).replace("e+", "e");
	}
	function times(v) { // as html_times: 0.77, 46, 3,600, 260,000
		if (v === null || !isFinite(v) || v < 1000 || v >= 1e9) return short(v);
		const step = 10 ** (Math.floor(Math.log10(v)) - 1);
		return thousands(Math.round(v / step) * step);
	}
	function eachWidth(box, work) { // draw for the width there is, and again when that changes
		let last = 0;
		const again = () => {
			const width = Math.floor(box.clientWidth);
			if (width && width !== last) { last = width; work(width); }
		};
		new ResizeObserver(again).observe(box);
		again();
		return () => { last = 0; again(); };
	}

	// ---- everywhere ----
	const theme = by("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
	const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
	const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", "Show in " + (isDark() ? "light" : "dark") + " colours"); };
	theme.hidden = false;
	theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
	dark.addEventListener("change", nameTheme);
	nameTheme();
	for (const section of document.querySelectorAll("[data-script]"))
		section.hidden = false;

	function select(node) {
		const range = document.createRange();
		range.selectNodeContents(node);
		getSelection().removeAllRanges();
		getSelection().addRange(range);
	}
	document.addEventListener("click", (event) => {
		const button = event.target.closest(".copy");
		if (!button) return;
		const code = button.parentNode.querySelector("code");
		const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
		const byHand = () => { select(code); if (document.execCommand("copy")) done(); };
		if (navigator.clipboard)
			navigator.clipboard.writeText(code.textContent).then(done, byHand);
		else
			byHand();
	});
	function command(label, text) {
		return make("div", { class: "cmd" }, [make("span", { class: "cmd-label" }, label), make("code", { tabindex: 0 }, text),
			make("button", { type: "button", class: "copy", "aria-label": "Copy: " + label }, "Copy")]);
	}
	let groups = 0;
	function choice(legend, options, chosen, changed) { // radio buttons in a row
		const name = "choice" + groups++;
		return make("fieldset", {}, [make("legend", {}, legend), ...options.map(([value, text]) => {
			const input = make("input", { type: "radio", name: name, value: value });
			input.checked = value === chosen;
			input.addEventListener("change", () => changed(value));
			return make("label", { class: "seg" }, [input, make("span", {}, text)]);
		})]);
	}

	// ---- plumb check ----
	const TENSOR = 0, LAYER = 1, OP = 2, PASS = 3, SHARE = 4, ULP = 5, L2 = 6, BF16 = 7, EQUAL = 8, AT = 9, OURS = 10, GOLDEN = 11, KERNEL = 12, WHY = 13;
	const metrics = {
		bound: { name: "error / bound", edges: [0, 0.25, 0.5, 0.75, 0.9, 1], words: ["0", "to 0.25", "to 0.5", "to 0.75", "to 0.9", "to 1"], fails: true },
		share: { name: "share of tolerance", edges: [0, 0.25, 0.5, 0.75, 0.9, 1], words: ["0", "to 0.25", "to 0.5", "to 0.75", "to 0.9", "to 1"], fails: true },
		ulp: { name: "largest ulp", edges: [0, 16, 256, 4096, 65536, Infinity], words: ["equal", "to 16", "to 256", "to 4,096", "to 65,536", "more"], fails: false },
	};

	function check() {
		const state = { view: 0, metric: "share" };
		const failed = data.views.findIndex((v) => v.items.some((i) => !i[PASS]) || v.bounds.some((b) => !b[1]));
		state.view = failed > 0 ? failed : 0;
		if (data.views.some((v) => v.bounds.length)) state.metric = "bound";
		const redraw = [];
		const change = () => redraw.forEach((f) => f());

		const columnOf = (layer, op) => layer >= 0 ? layer + 1 : op >= 0 && data.ops[op][1] === "embed" ? 0 : data.layers + 1;
		const columnName = (c) => c === 0 ? "in" : c === data.layers + 1 ? "out" : String(c - 1);
		const columnWords = (c) => c === 0 ? "before the layers" : c === data.layers + 1 ? "after the layers" : "layer " + (c - 1);

		function cells(view) { // op or tensor name -> row of cells by column
			const rows = new Map();
			const cell = (key, column) => {
				if (!rows.has(key)) rows.set(key, []);
				const row = rows.get(key);
				return row[column] = row[column] || { items: [], bound: null, pass: true };
			};
			for (const item of view.items) {
				const c = cell(item[OP] >= 0 ? item[OP] : item[TENSOR], columnOf(item[LAYER], item[OP]));
				c.items.push(item);
				c.pass = c.pass && !!item[PASS];
			}
			for (const [op, , list] of view.bounds)
				for (const b of list) {
					const c = cell(op, columnOf(b[0], op));
					c.bound = b;
					c.pass = c.pass && b[1] <= 1;
				}
			return [...rows.entries()].sort((a, b) => (typeof a[0] === "number" ? a[0] : 1000) - (typeof b[0] === "number" ? b[0] : 1000));
		}
		function value(c, metric) {
			if (metric === "bound") return c.bound ? c.bound[1] : null;
			const list = c.items.map((i) => i[metric === "ulp" ? ULP : SHARE]).filter((v) => v !== null);
			return list.length ? Math.max(...list) : null;
		}
		function shade(c, metric) {
			const v = value(c, metric), m = metrics[metric];
			if (v === null) return "";
			if (m.fails && v > 1) return v > 1000 ? "f3" : v > 10 ? "f2" : "f1";
			const k = m.edges.findIndex((e) => v <= e);
			return "c" + (k < 0 ? 5 : k);
		}

		// the map
		const heat = by("heat"), switches = make("div", { class: "switches" }), box = make("div", { class: "heat-box" });
		const scroll = make("div", { class: "scroll", role: "region", "aria-label": "Map of layers and ops" });
		const detail = make("div", { class: "detail", "aria-live": "polite" }), left = make("div", { style: "min-width:0" }), key = make("div", { class: "key" });
		const options = Object.keys(metrics).filter((m) => m !== "bound" || state.metric === "bound").map((m) => [m, metrics[m].name]);
		if (data.views.length > 1)
			switches.append(choice("view", data.views.map((v, i) => [String(i), v.view]), String(state.view), (v) => { state.view = Number(v); change(); }));
		switches.append(choice("colour", options, state.metric, (v) => { state.metric = v; change(); }));
		left.append(scroll, key);
		box.append(left, detail);
		heat.append(switches, box);

		function show(key, column, c) {
			const name = typeof key === "number" ? data.ops[key][0] : key;
			detail.replaceChildren(make("h3", {}, columnWords(column) + ", " + name));
			if (c.bound) {
				const [, ratio, at, ours, exact, bound] = c.bound;
				detail.append(make("p", {}, "Error / bound at most " + times(ratio) + (ratio > 1 ? ", so it is wrong: " : ": ") + at + " is " + ours + ", exact " + exact + " \u00b1 " + bound + "."));
			}
			if (c.items.length) {
				const head = ["tensor", "of tolerance", "rel L2", "ulp"];
				detail.append(make("table", {}, [make("thead", {}, make("tr", {}, head.map((h) => make("th", { scope: "col" }, h)))),
					make("tbody", {}, c.items.flatMap((i) => [make("tr", {}, [
						make("th", { scope: "row" }, i[TENSOR].replace(/^layer\d+\//, "")),
						make("td", {}, make("span", { class: "mark " + (i[PASS] ? "ok" : "bad") }, (i[PASS] ? "\u2713 " : "\u2717 ") + times(i[SHARE]))),
						make("td", {}, short(i[L2])), make("td", {}, i[ULP] === null ? "-" : isFinite(i[ULP]) ? thousands(i[ULP]) : "apart"),
					]), make("tr", { class: "more" }, make("td", { colspan: 4 }, i[AT] ? "worst [" + i[AT] + "]: " + i[OURS] + ", recorded " + i[GOLDEN] : i[WHY] || "equal in every element"))]))]));
			} else {
				detail.append(make("p", { class: "dim" }, "No tensor of this op is recorded; its bound is checked by itself."));
			}
			const layer = column > 0 && column <= data.layers ? column - 1 : "out";
			if (data.check)
				detail.append(command("look at this layer", data.check + " --layers " + layer + (layer === "out" ? "" : " --view local") + " --verbose"));
			const kernel = c.items.map((i) => i[KERNEL]).find((k) => k) || "";
			const suspect = kernel || (/ --set[ =]opt( |$)| --op[ =]all[@=]/.test(data.bisect) || data.bisect.includes("--op " + name + "=") || data.bisect.includes("--op " + name + "@") ? name : "");
			if (kernel && kernel !== name)
				detail.append(make("p", {}, "It carries what the kernel of " + kernel + " wrote, which is not recorded itself."));
			if (data.bisect && typeof key === "number" && suspect && !suspect.includes("+"))
				detail.append(command("keep this call, for plumb replay", data.bisect + " --call " + suspect + (layer === "out" ? "" : "@" + layer) + " --case " + suspect + ".h5"));
		}

		function map() {
			const view = data.views[state.view], rows = cells(view), columns = data.layers + 2, few = columns <= 14;
			const used = [];
			for (const [, row] of rows) row.forEach((c, i) => { if (c) used[i] = true; });
			const list = [...Array(columns).keys()].filter((c) => used[c] || (c > 0 && c <= data.layers));
			const table = make("table", { class: "heat" + (few ? " wide" : " fill"), role: "grid", "aria-label": metrics[state.metric].name + ", ops by layers" });
			table.append(make("thead", {}, make("tr", { role: "row" }, [make("th", { scope: "col" }, make("span", { class: "sr" }, "op")),
				...list.map((c) => make("th", { scope: "col" }, few || c === 0 || c > data.layers || (c - 1) % 4 === 0 ? columnName(c) : make("span", { class: "sr" }, columnName(c))))])));
			const body = make("tbody"), grid = [];
			let stage = "", worst = null;
			rows.forEach(([key, row], y) => {
				const now = typeof key === "number" ? data.ops[key][1] : "";
				const tr = make("tr", { class: y && now !== stage ? "stage" : null, role: "row" }, make("th", { scope: "row" }, typeof key === "number" ? data.ops[key][0] : key));
				stage = now;
				grid.push(list.map((column, x) => {
					const c = row[column];
					if (!c) { tr.append(make("td", { "aria-hidden": "true" })); return null; }
					const v = value(c, state.metric), text = v === null ? "" : state.metric === "ulp" && !isFinite(v) ? "apart" : tiny(v);
					const span = make("span", { class: shade(c, state.metric) }, c.pass ? (few ? text : "") : few && text ? text + "\u2009\u00d7" : "\u00d7");
					const label = columnWords(column) + ", " + (typeof key === "number" ? data.ops[key][0] : key) + ": " + (v === null ? "not measured" : metrics[state.metric].name + " " + times(v)) + (c.pass ? "" : ", failed");
					const td = make("td", { role: "gridcell", tabindex: -1, "aria-label": label }, span);
					const here = { td: td, key: key, column: column, cell: c, x: x, y: y };
					const on = () => {
						for (const old of table.querySelectorAll(".on")) old.classList.remove("on");
						td.classList.add("on");
						show(key, column, c);
					};
					td.addEventListener("pointerenter", (e) => { if (e.pointerType === "mouse" && !table.contains(document.activeElement)) on(); });
					td.addEventListener("focus", () => {
						for (const old of table.querySelectorAll("[tabindex='0']")) old.tabIndex = -1;
						td.tabIndex = 0;
						on();
					});
					td.addEventListener("click", () => td.focus());
					here.on = on;
					const better = !worst || (worst.cell.pass && !c.pass) || (worst.cell.pass && c.pass && (v || 0) > (value(worst.cell, state.metric) || 0)) ||
						(!worst.cell.pass && !c.pass && column < worst.column);
					if (better) worst = here;
					tr.append(td);
					return here;
				}));
				body.append(tr);
			});
			table.append(body);
			table.addEventListener("keydown", (event) => {
				const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
				const at = grid.flat().find((c) => c && c.td === document.activeElement);
				if (!at || !(step || event.key === "Home" || event.key === "End" || event.key === "Escape")) return;
				event.preventDefault();
				if (event.key === "Escape") { at.td.blur(); return; }
				if (event.key === "Home" || event.key === "End") {
					const row = grid[at.y].filter(Boolean);
					row[event.key === "Home" ? 0 : row.length - 1].td.focus();
					return;
				}
				for (let x = at.x + step[0], y = at.y + step[1]; grid[y] && x >= 0 && x < list.length; x += step[0], y += step[1])
					if (grid[y][x]) { grid[y][x].td.focus(); return; }
			});
			scroll.replaceChildren(table);
			box.classList.toggle("side", few);
			const m = metrics[state.metric];
			key.replaceChildren(...m.words.map((w, i) => make("span", {}, [make("i", { style: "background:var(--h" + i + ")" }), w])));
			if (m.fails)
				key.append(...[["f1", "to 10"], ["f2", "to 1,000"], ["f3", "more"]].map(([f, w]) => make("span", {}, [make("i", { style: "background:var(--" + f + ");color:" + (f === "f3" ? "var(--tf)" : "#fff") + "" }, "\u00d7"), w])));
			key.append(make("span", {}, "\u00d7 failed"));
			if (state.metric !== "bound" && !options.some((o) => o[0] === "bound"))
				key.append(make("span", {}, "add --bounds for each element's error against its derived bound"));
			if (worst) { worst.td.tabIndex = 0; worst.on(); }
		}
		redraw.push(map);

		// histograms
		const spread = by("spread");
		function histogram(name, counts, from, marks, over, words) {
			const W = 200, H = 54, most = Math.max(...counts), n = counts.length, w = W / n;
			const total = counts.reduce((a, b) => a + b, 0);
			const svg = draw("svg", { viewBox: "0 0 " + W + " " + (H + 14), role: "img", "aria-label": name + ": " + words(counts, total) });
			counts.forEach((c, i) => {
				if (!c) return;
				const h = Math.max(1.5, H * c / most);
				svg.append(draw("rect", { x: i * w + 0.5, y: H - h, width: Math.max(1, w - 1), height: h, class: over(i) ? "fillbad" : "fill4" }, draw("title", {}, marks(i) + ": " + thousands(c))));
			});
			svg.append(draw("path", { class: "axis", d: "M0 " + (H + 0.5) + "H" + W }));
			from.forEach(([i, t, anchor]) => svg.append(draw("text", { x: i * w, y: H + 12, "text-anchor": anchor || "middle" }, t)));
			return make("figure", {}, [make("figcaption", {}, [make("b", {}, name), make("span", {}, thousands(total))]), svg]);
		}
		function spreads() {
			const view = data.views[state.view], list = make("div", { class: "charts" });
			if (state.metric === "bound" && view.bounds.length) {
				spread.replaceChildren(make("p", { class: "dim" }, "Elements by error / bound; a right rounding error lies anywhere below 1, beyond it (red) something is wrong."), list);
				for (const [op, , , counts] of view.bounds)
					if (counts.some((c) => c))
						list.append(histogram(data.ops[op][0], counts, [[0, "0", "start"], [9, "\u00bd"], [17, "1"], [25, ">128", "end"]],
							(i) => i === 0 ? "exact" : i <= 16 ? "to " + i / 16 : i < 24 ? "to " + 2 ** (i - 16) : "beyond 128", (i) => i > 16,
							(c, n) => (100 * c[0] / n).toFixed(1) + " % exact, " + thousands(c.slice(17).reduce((a, b) => a + b, 0)) + " beyond the bound"));
			} else {
				spread.replaceChildren(make("p", { class: "dim" }, "Elements by distance from the recorded value, in steps of binary32 (ulp): equal at the left, each bar twice as far as the one before."), list);
				for (const [op, counts] of view.ulp) {
					const all = counts.concat(Array(Math.max(0, 35 - counts.length)).fill(0));
					list.append(histogram(data.ops[op][0], all, [[0, "0", "start"], [8.5, "2\u2077"], [16.5, "2\u00b9\u2075"], [24.5, "2\u00b2\u00b3"], [35, "apart", "end"]],
						(i) => i === 0 ? "equal" : i === 34 ? "apart" : "below 2^" + i + " ulp", (i) => i === 34,
						(c, n) => (100 * c[0] / n).toFixed(1) + " % equal, the farthest below 2^" + c.reduce((m, v, i) => v ? i : m, 0) + " ulp"));
				}
			}
		}
		redraw.push(spreads);

		// drift
		const drift = by("drift"), plot = make("div"), read = make("p", { class: "read", "aria-live": "polite" }), note = make("p", { class: "dim" });
		drift.append(note, plot, read);
		function drifts(width) {
			const view = data.views[state.view], list = view.drift.filter((d) => d[3].some((v) => v > 0));
			note.textContent = view.view === "local" ? "Relative L2 of each layer's output and of the logits, by token, each op fed recorded inputs: no error adds up here."
				: "Relative L2 of each layer's output and of the logits, by token: what adds up from the tokens on.";
			if (!list.length) { plot.replaceChildren(make("p", {}, "Every layer's output is equal to the recorded one.")); read.textContent = ""; return; }
			const right = width < 500 ? 56 : 96, W = width - 44 - right, H = 190, finite = list.flatMap((d) => d[3]).filter((v) => v > 0 && isFinite(v));
			const low = Math.floor(Math.log10(Math.min(...finite))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...finite))));
			const groups = Math.max(...list.map((d) => d[3].length)), x = (g) => 44 + (groups > 1 ? W * g / (groups - 1) : W / 2);
			const y = (v) => 8 + H - H * ((v > 0 ? Math.min(high, Math.max(low, Math.log10(v))) : low) - low) / (high - low);
			const svg = draw("svg", { width: width, height: H + 40, tabindex: 0, role: "img", "aria-label": "Relative L2 by token, " + list.length + " lines; left and right arrows read the tokens" });
			for (let e = low; e <= high; e++)
				svg.append(draw("path", { class: "axis", d: "M44 " + y(10 ** e) + "h" + W }), draw("text", { x: 38, y: y(10 ** e) + 4, "text-anchor": "end" }, "1e" + e));
			const per = data.tokens / groups;
			for (const t of [0, 0.25, 0.5, 0.75, 1])
				svg.append(draw("text", { x: x(t * (groups - 1)), y: H + 24, "text-anchor": "middle" }, String(Math.floor(Math.round(t * (groups - 1)) * per))));
			svg.append(draw("text", { x: 44 + W / 2, y: H + 38, "text-anchor": "middle" }, "token"));
			const ends = [];
			for (const d of list) {
				const main = d[1] < 0, shadeOf = list.length > 1 && d[1] >= 0 ? 0.35 + 0.65 * d[1] / Math.max(1, data.layers - 1) : 1;
				const points = d[3].map((v, g) => [x(g), y(v)]).filter((p, g) => d[3][g] !== null && (d[3][g] > 0 || d[0] !== "decode_logits"));
				if (!points.length) continue;
				svg.append(draw("polyline", { class: "line" + (d[2] ? main ? " main" : "" : " wrong"), "stroke-opacity": d[2] ? shadeOf : 1, points: points.map((p) => p[0].toFixed(1) + "," + p[1].toFixed(1)).join(" ") }, draw("title", {}, d[0])));
				ends.push([points[points.length - 1][1], d[0].replace(/^layer0*(\d+)\//, "$1 ")]);
			}
			ends.sort((a, b) => a[0] - b[0]);
			let lastY = -99;
			for (const [at, text] of ends)
				if (at - lastY >= 12) { svg.append(draw("text", { x: 44 + W + 6, y: at + 4, class: "label" }, width < 500 ? text.slice(0, 9) : text)); lastY = at; }
			const line = draw("path", { class: "axis", d: "" });
			svg.append(line);
			let token = groups - 1;
			const tell = (g) => {
				token = Math.max(0, Math.min(groups - 1, g));
				line.setAttribute("d", "M" + x(token) + " 8v" + H);
				line.style.stroke = "var(--dim)";
				const first = Math.floor(token * per), last = Math.max(first, Math.floor((token + 1) * per) - 1);
				const worst = [...list].sort((a, b) => (b[3][token] || 0) - (a[3][token] || 0)).slice(0, 4);
				read.textContent = (first === last ? "token " + first : "tokens " + first + " to " + last) + ": " + worst.map((d) => d[0] + " " + short(d[3][token])).join(", ") + (list.length > 4 ? ", the others less" : "");
			};
			svg.addEventListener("pointermove", (e) => tell(Math.round((e.clientX - svg.getBoundingClientRect().left - 44) / W * (groups - 1))));
			svg.addEventListener("keydown", (e) => {
				if (e.key === "ArrowLeft" || e.key === "ArrowRight") { e.preventDefault(); tell(token + (e.key === "ArrowLeft" ? -1 : 1)); }
			});
			plot.replaceChildren(svg);
			tell(groups - 1);
		}

		// every tensor
		const all = by("all"), details = make("details", {}, make("summary", {}, "Show all " + data.views[0].items.length + " tensors of a view"));
		all.append(details);
		let sort = [-1, 1], built = false;
		function table() {
			if (!details.open) { built = false; return; }
			const view = data.views[state.view];
			const columns = [["tensor", TENSOR, 0], ["op", OP, 0], ["result", PASS, 0], ["of tolerance", SHARE, 1], ["rel L2", L2, 1], ["ulp", ULP, 1], ["bf16 ulp", BF16, 1], ["equal %", EQUAL, 1], ["worst at", AT, 1], ["ours", OURS, 1], ["recorded", GOLDEN, 1]];
			const find = details.querySelector("input") || make("input", { class: "find", type: "search", placeholder: "Filter by name or op", "aria-label": "Filter tensors" });
			const rows = view.items.filter((i) => (i[TENSOR] + " " + (i[OP] >= 0 ? data.ops[i[OP]][0] : "")).includes(find.value));
			if (sort[0] >= 0) rows.sort((a, b) => { const p = a[sort[0]], q = b[sort[0]]; return sort[1] * (p === q ? 0 : p === null ? -1 : q === null ? 1 : p < q ? -1 : 1); });
			const head = make("tr", {}, columns.map(([name, field, number]) => {
				const button = make("button", { type: "button" }, name);
				button.addEventListener("click", () => { sort = [field, sort[0] === field ? -sort[1] : number ? -1 : 1]; table(); });
				return make("th", { scope: "col", class: number ? "n" : null, "aria-sort": sort[0] !== field ? null : sort[1] > 0 ? "ascending" : "descending" }, button);
			}));
			const body = make("tbody", {}, rows.map((i) => make("tr", { class: i[PASS] ? null : "bad" }, [make("th", { scope: "row" }, i[TENSOR]), make("td", {}, i[OP] >= 0 ? data.ops[i[OP]][0] : "-"),
				make("td", {}, make("span", { class: "mark " + (i[PASS] ? "ok" : "bad") }, i[PASS] ? "\u2713 ok" : "\u2717 fail")),
				...[times(i[SHARE]), short(i[L2]), i[ULP] === null ? "-" : isFinite(i[ULP]) ? thousands(i[ULP]) : "apart", i[BF16] === null ? "-" : isFinite(i[BF16]) ? thousands(i[BF16]) : "apart",
					i[EQUAL] === null ? "-" : (100 * i[EQUAL]).toFixed(2), i[AT] || "-", i[OURS] || "-", i[GOLDEN] || "-"].map((t) => make("td", { class: "n" }, t))])));
			const box = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Every tensor" }, make("table", {}, [make("thead", {}, head), body]));
			if (!built) {
				find.addEventListener("input", table);
				details.append(find);
			}
			const old = details.querySelector(".scroll");
			if (old) old.replaceWith(box); else details.append(box);
			built = true;
		}
		details.addEventListener("toggle", table);
		redraw.push(table);
		change();
		redraw.push(eachWidth(plot, drifts));
	}

	// ---- plumb bench: bytes of a call against its time ----
	function roof(box, ops) {
		const list = ops.filter((o) => o[1] > 0 && o[2] > 0);
		if (!list.length) return;
		const plot = make("div"), read = make("p", { class: "read", "aria-live": "polite" }, "Each dot is an op. On the dashed line it moves its bytes at the card's reading rate; above it, it takes longer.");
		box.append(make("figure", {}, [plot, read]));
		eachWidth(plot, (width) => {
			const W = width - 62 - 16, H = width < 500 ? 240 : 300, left = 62;
			const range = (v, pad) => [Math.log10(Math.min(...v)) - pad, Math.log10(Math.max(...v)) + pad];
			const line = (bytes) => bytes / (data.ceiling * 1e3); // us
			const [x0, x1] = range(list.map((o) => o[1]), 0.25), times = list.flatMap((o) => o[5] > 0 ? [o[2], o[5]] : [o[2]]);
			const [y0, y1] = range(data.ceiling > 0 ? times.concat(list.map((o) => line(o[1]))) : times, 0.2);
			const x = (v) => left + W * (Math.log10(v) - x0) / (x1 - x0), y = (v) => 8 + H - H * (Math.log10(v) - y0) / (y1 - y0);
			const svg = draw("svg", { width: width, height: H + 44, role: "group", "aria-label": "Roofline: bytes of a call against microseconds" });
			const unit = (v) => v >= 1e9 ? v / 1e9 + " GB" : v >= 1e6 ? v / 1e6 + " MB" : v >= 1e3 ? v / 1e3 + " kB" : v + " B";
			for (let e = Math.ceil(x0); e <= x1; e++)
				svg.append(draw("path", { class: "axis", d: "M" + x(10 ** e) + " 8v" + H }), draw("text", { x: x(10 ** e), y: H + 23, "text-anchor": "middle" }, unit(10 ** e)));
			for (let e = Math.ceil(y0); e <= y1; e++)
				svg.append(draw("path", { class: "axis", d: "M" + left + " " + y(10 ** e) + "h" + W }), draw("text", { x: left - 6, y: y(10 ** e) + 4, "text-anchor": "end" }, 10 ** e >= 1e3 ? thousands(10 ** e) : 10 ** e + " us"));
			svg.append(draw("text", { x: left + W / 2, y: H + 40, "text-anchor": "middle" }, "bytes of a call"));
			if (data.ceiling > 0) { // clipped to the box by where it enters and leaves
				const a = Math.max(x0, y0 + Math.log10(data.ceiling * 1e3)), b = Math.min(x1, y1 + Math.log10(data.ceiling * 1e3));
				if (a < b) {
					svg.append(draw("path", { class: "roof", fill: "none", d: "M" + x(10 ** a) + " " + y(line(10 ** a)) + "L" + x(10 ** b) + " " + y(line(10 ** b)) }));
					const m = a + 0.3 * (b - a); // where few dots are: left, below the line
					svg.append(draw("text", { x: x(10 ** m) + 6, y: y(line(10 ** m)) + 14 }, "reading at " + (data.ceiling >= 100 ? thousands(data.ceiling) : data.ceiling.toFixed(1)) + " GB/s"));
				}
			}
			const taken = list.map((o) => [x(o[1]) - 7, y(o[2]) - 7, 14, 14]);
			const free = (r) => r[0] > left && r[0] + r[2] < left + W + 14 && r[1] > 4 && r[1] + r[3] < H + 8 && !taken.some((t) => r[0] < t[0] + t[2] && t[0] < r[0] + r[2] && r[1] < t[1] + t[3] && t[1] < r[1] + r[3]);
			for (const o of [...list].sort((a, b) => b[3] - a[3])) {
				const px = x(o[1]), py = y(o[2]), long = o[0].length * 6.1 + 4;
				const words = o[0] + ": " + unit(Number(o[1].toPrecision(3))) + " and " + short(o[2]) + " us a call, " + (data.ceiling > 0 ? (100 * line(o[1]) / o[2]).toFixed(1) + " % of the reading rate, " : "") + short(o[3]) + " us a token" + (o[5] > 0 ? ", before " + short(o[5]) + " us a call" : "") + (o[4] ? "; may come from the cache" : "");
				if (o[5] > 0)
					svg.append(draw("path", { class: "axis", d: "M" + px + " " + y(o[5]) + "L" + px + " " + py }), draw("circle", { cx: px, cy: y(o[5]), r: 2.5, class: "dot warm" }));
				const dot = draw("circle", { cx: px, cy: py, r: 5, class: "dot" + (o[4] ? " warm" : ""), tabindex: 0, role: "img", "aria-label": words });
				const tell = () => { read.textContent = words; };
				dot.addEventListener("pointerenter", tell);
				dot.addEventListener("focus", tell);
				svg.append(dot);
				const spot = [[px + 8, py - 7], [px - 6 - long, py - 7], [px - long / 2, py - 22], [px - long / 2, py + 8]].find((s) => free([s[0], s[1], long, 13]));
				if (spot) {
					taken.push([spot[0], spot[1], long, 13]);
					svg.append(draw("text", { x: spot[0], y: spot[1] + 11, class: "label" }, o[0]));
				}
			}
			plot.replaceChildren(svg);
		});
	}

	if (data.kind === "check" && data.views.length)
		check();
	if (data.kind === "bench")
		for (const box of document.querySelectorAll("[data-roof]"))
			roof(box, data.contexts[Number(box.dataset.roof)] || []);
})();
