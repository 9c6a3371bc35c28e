// Whole numbers, mixed many times: no shortcut leads to the result. The generator: pcg-random.org, and its 32 bits.
@group(0) @binding(0) var<storage, read> seeds: array<u32>;
@group(0) @binding(1) var<storage, read_write> mixed: array<u32>;
@group(0) @binding(2) var<uniform> given: vec4<u32>; // the page's secret number, rounds; two more are unused

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&mixed)) {
        return;
    }
    var state = seeds[id.x] ^ given.x;
    for (var round = 0u; round < given.y; round++) {
        state = state * 747796405u + 2891336453u;
        state = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
        state = (state >> 22u) ^ state;
    }
    mixed[id.x] = state;
}
