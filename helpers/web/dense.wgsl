// A dense layer: outputs = inputs . weights + bias, then ReLU where the flag says so. One invocation for each output.
@group(0) @binding(0) var<storage, read> inputs: array<f32>; // (m, k)
@group(0) @binding(1) var<storage, read> weights: array<f32>; // (k, n)
@group(0) @binding(2) var<storage, read> bias: array<f32>; // (n)
@group(0) @binding(3) var<storage, read_write> outputs: array<f32>; // (m, n)
@group(0) @binding(4) var<uniform> shape: vec4<u32>; // m, n, k, relu: 1 or 0

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x / shape.y;
    let column = id.x % shape.y;
    if (row >= shape.x) {
        return;
    }
    var sum = bias[column];
    for (var i = 0u; i < shape.z; i++) {
        sum += inputs[row * shape.z + i] * weights[i * shape.y + column];
    }
    outputs[id.x] = select(sum, max(sum, 0.0), shape.w == 1u);
}
