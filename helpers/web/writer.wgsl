// Lesson 16b's network writes one digit, piece by piece: 13 launches for each piece, which keep the cache on the device.
// One of them, attend, comes from attend.wgsl, or from a learner.
@group(0) @binding(0) var<storage, read> weights: array<f32>; // in the order of the numbers below
@group(0) @binding(1) var<storage, read_write> rows: array<f32>; // of 64: x, q, k, v, answers, scores; then 256: hidden
@group(0) @binding(2) var<storage, read_write> cache: array<f32>; // keys, then values: (2 layers, 4 heads, 49 places, 16)
@group(0) @binding(3) var<storage, read_write> words: array<u32>; // the label's, then 49 words, then the place of the last
@group(0) @binding(4) var<storage, read> chances: array<f32>; // a number from 0 up to 1 for each word
@group(0) @binding(5) var<uniform> at: At;

struct At { layer: u32, temperature: f32 }

const X = 0u; const Q = 64u; const K = 128u; const V = 192u; const ANSWERS = 256u; const SCORES = 320u; const HIDDEN = 384u;
const PLACES = 4736u; const LAYERS = 7872u; const AFTER = 107840u; // where weights begin
const ASK = 128u; const ASK_BIAS = 12416u; const MIX = 12608u; const MIX_BIAS = 16704u; // in a layer, likewise
const BETWEEN = 16768u; const SPREAD = 16896u; const SPREAD_BIAS = 33280u; const GATHER = 33536u; const GATHER_BIAS = 49920u;
const LAYER = 49984u; // weights of a layer
const VALUES = 6272u; // where a cache's values begin: 2 layers of 4 heads of 49 places of 16

var<workgroup> sums: array<f32, 64>;

fn multiply(row: u32, matrix: u32, inputs: u32, outputs: u32, o: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < inputs; i++) { sum += rows[row + i] * weights[matrix + i * outputs + o]; }
    return sum;
}

fn multiply_normal(normal: u32, matrix: u32, outputs: u32, o: u32) -> f32 { // of the row x
    var mean = 0.0;
    var variance = 0.0;
    var sum = 0.0;
    for (var i = 0u; i < 64u; i++) { mean += rows[X + i] / 64.0; }
    for (var i = 0u; i < 64u; i++) { variance += (rows[X + i] - mean) * (rows[X + i] - mean) / 64.0; }
    let scale = 1.0 / sqrt(variance + 1e-5);
    for (var i = 0u; i < 64u; i++) {
        let value = (rows[X + i] - mean) * scale * weights[normal + i] + weights[normal + 64u + i];
        sum += value * weights[matrix + i * outputs + o];
    }
    return sum;
}

@compute @workgroup_size(64)
fn begin(@builtin(global_invocation_id) id: vec3<u32>) {
    let place = words[50];
    rows[X + id.x] = weights[words[place] * 64u + id.x] + weights[PLACES + place * 64u + id.x];
}

@compute @workgroup_size(64)
fn ask(@builtin(global_invocation_id) id: vec3<u32>) { // 192: q, k and v
    let layer = LAYERS + at.layer * LAYER;
    let part = id.x / 64u;
    let o = id.x % 64u;
    rows[Q + id.x] = weights[layer + ASK_BIAS + id.x] + multiply_normal(layer, layer + ASK + part * 4096u, 64u, o);
}

@compute @workgroup_size(64)
fn combine(@builtin(global_invocation_id) id: vec3<u32>) {
    let layer = LAYERS + at.layer * LAYER;
    rows[X + id.x] += weights[layer + MIX_BIAS + id.x] + multiply(ANSWERS, layer + MIX, 64u, 64u, id.x);
}

@compute @workgroup_size(64)
fn spread(@builtin(global_invocation_id) id: vec3<u32>) { // 256
    let layer = LAYERS + at.layer * LAYER;
    let sum = weights[layer + SPREAD_BIAS + id.x] + multiply_normal(layer + BETWEEN, layer + SPREAD, 256u, id.x);
    rows[HIDDEN + id.x] = max(sum, 0.0);
}

@compute @workgroup_size(64)
fn gather(@builtin(global_invocation_id) id: vec3<u32>) {
    let layer = LAYERS + at.layer * LAYER;
    rows[X + id.x] += weights[layer + GATHER_BIAS + id.x] + multiply(HIDDEN, layer + GATHER, 256u, 64u, id.x);
}

@compute @workgroup_size(64)
fn judge(@builtin(global_invocation_id) id: vec3<u32>) {
    rows[SCORES + id.x] = weights[AFTER + 4224u + id.x] + multiply_normal(AFTER, AFTER + 128u, 64u, id.x);
}

@compute @workgroup_size(64)
fn choose(@builtin(local_invocation_id) id: vec3<u32>) {
    let i = id.x;
    let place = words[50];
    var largest = -3.4e38;
    for (var j = 0u; j < 64u; j++) { largest = max(largest, rows[SCORES + j]); }
    sums[i] = exp((rows[SCORES + i] - largest) / at.temperature);
    workgroupBarrier();
    for (var step = 1u; step < 64u; step *= 2u) {
        var before = 0.0;
        if (i >= step) { before = sums[i - step]; }
        workgroupBarrier();
        sums[i] += before;
        workgroupBarrier();
    }
    let point = chances[place] * sums[63];
    var below = 0.0;
    if (i > 0u) { below = sums[i - 1u]; }
    if (below <= point && point < sums[i]) { words[place + 1u] = i; }
    storageBarrier(); // all have read the place
    if (i == 0u) { words[50] = place + 1u; }
}
