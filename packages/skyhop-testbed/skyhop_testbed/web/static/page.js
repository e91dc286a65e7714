/* Live charts: the server's pictures become uPlot's, which move. Without this file they stand still. */
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live || !window.uPlot || !window.fetch) return;
  const percent = (value) => (value === null ? null : 100 * value);
  const mega = (value) => (value === null ? null : value / 1e6);
  const same = (value) => value;
  const charts = [
    { unit: "ms", lines: [["latency", "pop_ping_latency_ms", same]] },
    { unit: "%", least: 5, lines: [["lost", "pop_ping_drop_rate", percent]] },
    { unit: "Mbit/s", lines: [["down", "downlink_throughput_bps", mega], ["up", "uplink_throughput_bps", mega]] },
    { unit: "Mbit/s", lines: [["received", "user_rx_bps", mega], ["sent", "user_tx_bps", mega]] },
  ];
  const places = [...live.querySelectorAll("[data-chart]")];
  const colour = (name) => () => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    live.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const utc = (seconds) => new Date(1000 * seconds).toISOString().slice(11, 19);
  const size = (place) => ({ width: Math.max(200, place.clientWidth - 14), height: 190 });
  let plots = null;

  function make(place, chart, data) {
    const figure = place.querySelector("figure");
    const unit = figure.querySelector("figcaption small");
    if (unit) unit.textContent = chart.unit;
    [...figure.children].filter((child) => child.tagName !== "FIGCAPTION").forEach((child) => child.remove());
    const plot = figure.appendChild(document.createElement("div"));
    plot.className = "plot";
    return new uPlot({
      ...size(place),
      tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "UTC"),
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(chart.least || 0, high > 0 ? 1.1 * high : 1e-3)] } },
      axes: [{ ...axis, space: 70, values: (_plot, ticks) => ticks.map((at) => utc(at).slice(0, 5)) }, { ...axis, size: 52 }],
      series: [
        { label: "time", value: (_plot, at) => (at === null ? "" : utc(at)) },
        ...chart.lines.map(([label], number) => ({ label, stroke: colour(`--k${number}`), width: 1.5, value: (_plot, value) => (value === null ? "" : `${value.toFixed(1)} ${chart.unit}`) })),
      ],
    }, data, plot);
  }

  async function look() {
    if (document.hidden) return;
    const answer = await fetch(live.dataset.live, { headers: { Accept: "application/json" } });
    if (answer.status === 401) location.reload();
    if (!answer.ok) return;
    const found = await answer.json();
    if (!found.time_s.length) return;
    const limits = { min: found.now_s - Number(live.dataset.span), max: found.now_s };
    const data = charts.slice(0, places.length).map((chart) => [found.time_s, ...chart.lines.map(([, name, scaled]) => found[name].map(scaled))]);
    plots = plots || places.map((place, number) => make(place, charts[number], data[number]));
    plots.forEach((plot, number) => plot.batch(() => { plot.setData(data[number]); plot.setScale("x", limits); }));
    document.getElementById("live-when").textContent = utc(found.now_s);
  }

  window.addEventListener("resize", () => (plots || []).forEach((plot, number) => plot.setSize(size(places[number]))));
  const again = () => look().catch(() => {}).finally(() => setTimeout(again, 2000));
  again();
})();
