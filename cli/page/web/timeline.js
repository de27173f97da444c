// SPDX-License-Identifier: Apache-2.0
// Stages and rounds. In round k of a stage rank r sends to rank r + k, so every pair has one round.
import { section, element } from "./dom.js";
import { countText, exactText, sizeText, timeText } from "./format.js";
import { DATA, REPORT, STAGES } from "./data.js";
import { heatColour, ink } from "./colour.js";
import { CHART_LEFT, barEdge, drawing, tickStep } from "./canvas.js";
import { state, onState, choose } from "./state.js";

const LANE_HEIGHT = 92;

/** {sum, most} of each round of a stage; round k is at k - 1. */
function readRounds(stage) {
    const rounds = [];
    for (let i = 0; i < stage.rounds.length; i += 2) rounds.push({ sum: stage.rounds[i], most: stage.rounds[i + 1] });
    return rounds;
}

/** What a rank sends in a round, or null if the page does not say. */
function bytesOfRank(stage, round, rank) {
    const matrix = STAGES[stage];
    return matrix.cell > 1 ? null : matrix.at(rank, (rank + round) % matrix.rows);
}

function timelineDrawing(lanes) {
    const count = lanes[0].length;
    const most = Math.max(1, ...lanes.map((rounds) => rounds.reduce((top, round) => Math.max(top, round.most), 0)));
    let step = 1;

    function drawBars(context, rounds, stage, base) {
        const gap = step > 4 ? 1 : 0;
        const sender = state.link ? state.link[0] : state.rank;
        const marked = state.link ? (state.link[1] - state.link[0] + REPORT.ranks) % REPORT.ranks : null;
        rounds.forEach((round, i) => {
            const height = (round.most / most) * (LANE_HEIGHT - 26);
            const isDim = sender !== null && (marked === null ? bytesOfRank(stage, i + 1, sender) === 0 : marked !== i + 1);
            context.globalAlpha = isDim ? 0.3 : 1;
            context.fillStyle = `rgb(${heatColour(0.25 + 0.6 * (round.most / most)).join()})`;
            context.fillRect(barEdge(i * step), base - height, barEdge((i + 1) * step) - barEdge(i * step) - gap, height);
            const own = sender === null || (marked !== null && marked !== i + 1) ? null : bytesOfRank(stage, i + 1, sender);
            if (own) {
                context.globalAlpha = 1;
                context.fillStyle = ink("accent");
                context.fillRect(barEdge(i * step), base - (own / most) * (LANE_HEIGHT - 26), Math.max(1, step - gap), 3);
            }
        });
        context.globalAlpha = 1;
    }
    return drawing({
        label: `Timeline: ${countText(lanes.length, "stage")} of ${countText(count, "round")}`,
        height: () => lanes.length * LANE_HEIGHT + 18,
        draw: (context, width, height, cursor) => {
            step = Math.min(72, (width - CHART_LEFT - 4) / count);
            context.font = `12px ${ink("font")}`;
            context.textBaseline = "middle";
            lanes.forEach((rounds, stage) => {
                const base = (stage + 1) * LANE_HEIGHT - 6;
                context.fillStyle = ink("muted");
                context.textAlign = "left";
                context.fillText(`stage ${stage}`, 0, base - LANE_HEIGHT / 2 + 8);
                context.fillText(sizeText(most), CHART_LEFT, base - LANE_HEIGHT + 16);
                context.fillStyle = ink("line-strong");
                context.fillRect(CHART_LEFT, base, width - CHART_LEFT - 4, 1);
                drawBars(context, rounds, stage, base);
            });
            context.fillStyle = ink("muted");
            context.textAlign = "center";
            const every = tickStep(step, 30);
            for (let i = every - 1; i < count; i += every) context.fillText(`${i + 1}`, CHART_LEFT + (i + 0.5) * step, height - 7);
            if (cursor) {
                context.strokeStyle = ink("accent");
                context.lineWidth = 2;
                context.strokeRect(CHART_LEFT + cursor.round * step, cursor.stage * LANE_HEIGHT + 14, Math.max(3, step), LANE_HEIGHT - 18);
            }
        },
        hit: (x, y) => {
            const [round, stage] = [Math.floor((x - CHART_LEFT) / step), Math.floor(y / LANE_HEIGHT)];
            return round >= 0 && round < count && stage >= 0 && stage < lanes.length ? { round, stage } : null;
        },
        step: (target, dx, dy) => target === null ? { round: 0, stage: 0 } :
            { round: (target.round + dx + count) % count, stage: (target.stage + dy + lanes.length) % lanes.length },
        tell: ({ round, stage }) => {
            const { sum, most: top } = lanes[stage][round];
            const own = state.rank === null ? null : bytesOfRank(stage, round + 1, state.rank);
            return `stage ${stage}, round ${round + 1}: ${sizeText(sum)} in all\n` +
                `busiest pair: ${sizeText(top)} in ${countText(Math.ceil(top / REPORT.segment_bytes), "segment")}` +
                (own === null ? "" : `\nrank ${state.rank} \u2192 rank ${(state.rank + round + 1) % REPORT.ranks}: ${sizeText(own)}`);
        },
        pick: ({ round }) => {
            const from = state.link ? state.link[0] : state.rank ?? 0;
            choose("link", [from, (from + round + 1) % REPORT.ranks]);
        },
    });
}

/** The predicted time of each stage, and its bottleneck. */
function predictionList() {
    if (!REPORT.prediction) return null;
    return element("ul", { class: "hint" }, REPORT.prediction.stages.map((stage, i) => element("li", {},
        `Stage ${i}: predicted ${timeText(stage.seconds)}, of which latency ${timeText(stage.latency_seconds)}; slowest: ${stage.bottleneck}, ` +
        `${sizeText(stage.bytes)}. Between nodes ${sizeText(stage.bytes_between_nodes)}, within them ${sizeText(stage.bytes_within_nodes)}.`)));
}

export function timelineSection() {
    if (!DATA.stage_list || REPORT.ranks < 2) return null;
    const lanes = DATA.stage_list.map(readRounds);
    const used = lanes.map((rounds) => rounds.filter((round) => round.sum > 0).length);
    const drawn = timelineDrawing(lanes);
    onState(drawn.redraw);
    return section("timeline", "Stages and rounds",
        element("p", { class: "hint" }, `In round k of a stage, rank r sends to rank r + k (of ${exactText(REPORT.ranks)}, going round), in segments of ` +
            `${sizeText(REPORT.segment_bytes)}; a bar is as high as its busiest pair. ` +
            used.map((count, stage) => `Stage ${stage} has bytes in ${countText(count, "round")}.`).join(" ")),
        drawn.node, predictionList());
}
