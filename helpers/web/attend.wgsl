@compute @workgroup_size(4)
fn attend(@builtin(global_invocation_id) id: vec3<u32>) { // one head
    let place = words[50];
    let row = id.x * 16u;
    let head = (at.layer * 4u + id.x) * 49u;
    for (var c = 0u; c < 16u; c++) {
        cache[(head + place) * 16u + c] = rows[K + row + c];
        cache[VALUES + (head + place) * 16u + c] = rows[V + row + c];
    }
    var answer = array<f32, 16>();
    var largest = -3.4e38; // WGSL has no infinity
    var sum = 0.0;
    for (var j = 0u; j <= place; j++) {
        var score = 0.0;
        for (var c = 0u; c < 16u; c++) { score += rows[Q + row + c] * cache[(head + j) * 16u + c]; }
        score /= 4.0;
        let next = max(largest, score);
        let old = exp(largest - next);
        let weight = exp(score - next);
        sum = sum * old + weight;
        for (var c = 0u; c < 16u; c++) { answer[c] = answer[c] * old + weight * cache[VALUES + (head + j) * 16u + c]; }
        largest = next;
    }
    for (var c = 0u; c < 16u; c++) { rows[ANSWERS + row + c] = answer[c] / sum; }
}
