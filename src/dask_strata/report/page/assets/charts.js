// Draws the charts below the timeline.

async function drawCharts(m) {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  drawActivity(charts.activity);
  drawDurations(charts);
  drawHeatMap(charts);
  const colors = new Map(m.facts.prefixes);
  return drawGraph((prefix) => colors.get(prefix) || "#8fa3b8");
}
