// c = a . b for square matrices, row by row; n is a multiple of 4. Each invocation computes 4 x 4 elements of c.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> shape: vec4<u32>; // n, the rows and columns; three more are unused

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let width = shape.x / 4u; // of a row, in vectors of four
    if (id.x >= width || id.y >= width) {
        return;
    }
    var sums: array<vec4<f32>, 4>;
    for (var k = 0u; k < width; k++) {
        let b0 = b[(4u * k) * width + id.x];
        let b1 = b[(4u * k + 1u) * width + id.x];
        let b2 = b[(4u * k + 2u) * width + id.x];
        let b3 = b[(4u * k + 3u) * width + id.x];
        for (var row = 0u; row < 4u; row++) {
            let four = a[(4u * id.y + row) * width + k];
            sums[row] += four.x * b0 + four.y * b1 + four.z * b2 + four.w * b3;
        }
    }
    for (var row = 0u; row < 4u; row++) {
        c[(4u * id.y + row) * width + id.x] = sums[row];
    }
}
