"""Wrong and right answers of lesson 14's exercises."""

SAXPY = '''saxpy = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
struct Told {{ n: u32, alpha: f32 }}
@group(0) @binding(3) var<uniform> told: Told;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
{body}
}}
"""'''
SAXPY_SPLIT = '''saxpy = """
struct Told { n: u32, alpha: f32 };
@binding(3) @group(0) var<uniform> told: Told;
@binding(0) @group(0) var<storage> a: array<f32>;
@binding(1) @group(0) var<storage> b: array<f32>;
@binding(2) @group(0) var<storage, read_write> c: array<f32>;

fn value(i: u32) -> f32 { return fma(told.alpha, a[i], b[i]); }

/* own names, a function of its own, and the number put together by hand */
@compute @workgroup_size(64, 1, 1)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) me: u32) {
    let i = group.x * 64u + me;
    if i < told.n { c[i] = value(i); }
}
"""'''
DENSE = '''dense = """
@group(0) @binding(0) var<storage, read> inputs: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> outputs: array<f32>;
@group(0) @binding(4) var<uniform> sizes: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
{body}
}}
"""'''
SUMS = '''sums = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;
var<workgroup> near: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) me: u32,
        @builtin(workgroup_id) group: vec3<u32>) {{
{body}
}}
"""'''

MUTANTS = {
    1: {
        "no guard": [("if (i >= told.n) {\n        return;\n    }", "")],
        "guard one too far": [("i >= told.n", "i > told.n")],
        "guard one too early": [("i >= told.n", "i + 1u >= told.n")],
        "guard by the buffer": [("i >= told.n", "i >= arrayLength(&out)")],
        "no alpha": [("told.alpha * x[i]", "x[i]")],
        "alpha times both": [("told.alpha * x[i] + y[i]", "told.alpha * (x[i] + y[i])")],
        "into x's neighbour": [("out[i] =", "out[i + 1u] =")],
        "adds to what was there": [("out[i] =", "out[i] +=")],
        "spoils its neighbour": [("    out[i] =", "    if (i + 1u < told.n) { out[i + 1u] = 0.0; }\n    out[i] =")],
        "every invocation computes everything": [
            ("let i = id.x;", "for (var i = 0u; i < told.n; i++) {"),
            ("    if (i >= told.n) {\n        return;\n    }\n", ""),
            ("+ y[i];", "+ y[i]; }"),
        ],
        "spare invocations write the last one": [
            ("let i = id.x;", "let i = min(id.x, told.n - 1u);"),
            ("    if (i >= told.n) {\n        return;\n    }\n", ""),
        ],
        "several elements for each": [  # right, but each invocation shall have one
            (
                "@builtin(global_invocation_id)",
                "@builtin(num_workgroups) groups: vec3u, @builtin(global_invocation_id)",
            ),
            ("let i = id.x;", "for (var i = id.x; i < told.n; i += groups.x * 64u) {"),
            ("    if (i >= told.n) {\n        return;\n    }\n", ""),
            ("+ y[i];", "+ y[i]; }"),
        ],
        "local number": [("let i = id.x;", "let i = id.x % 64u;")],
        "half of the group": [("@workgroup_size(64)", "@workgroup_size(32)")],
        "does not compile": [("told.alpha * x[i]", "alpha * x[i]")],
        "other binding": [("@binding(1)", "@binding(7)")],
        "endless": [("out[i] =", "loop { if (told.alpha > 1e9) { break; } }\n    out[i] =")],
    },
    2: {
        "no guard": [("if (id.x >= sizes.x * sizes.z) {\n        return;\n    }", "")],
        "guard by n": [("id.x >= sizes.x * sizes.z", "id.x >= sizes.x * sizes.y")],
        "no bias": [("var sum = bias[column];", "var sum = 0.0;")],
        "bias by row": [("bias[column]", "bias[row]")],
        "always relu": [("if (sizes.w == 1u) {", "if (true) {")],
        "never relu": [("if (sizes.w == 1u) {", "if (false) {")],
        "relu before the sum": [("var sum = bias[column];", "var sum = max(bias[column], 0.0);")],
        "weights turned": [("weights[k * sizes.z + column]", "weights[column * sizes.y + k]")],
        "inputs by out": [("inputs[row * sizes.y + k]", "inputs[row * sizes.z + k]")],
        "spare invocations write the last one": [
            ("if (id.x >= sizes.x * sizes.z) {\n        return;\n    }", "let me = min(id.x, sizes.x * sizes.z - 1u);"),
            ("id.x / sizes.z", "me / sizes.z"),
            ("id.x % sizes.z", "me % sizes.z"),
            ("outputs[id.x]", "outputs[me]"),
        ],
        "last one left out": [("k < sizes.y", "k + 1u < sizes.y")],
        "row and column swapped": [
            ("id.x / sizes.z", "id.x % sizes.z + 0u * sizes.x"),
            ("let column = id.x % sizes.z;", "let column = id.x / sizes.z;"),
        ],
        "endless": [("k++", "k += 0u")],
    },
    3: {
        "no barrier": [("    workgroupBarrier();\n    for", "    for"), ("        workgroupBarrier();\n", "")],
        "no first barrier": [("    workgroupBarrier();\n    for", "    for")],
        "no barrier in the loop": [("        workgroupBarrier();\n", "")],
        "barrier inside the if": [
            ("near[me] += near[me + step];", "near[me] += near[me + step];\n            workgroupBarrier();"),
            ("        }\n        workgroupBarrier();", "        }"),
        ],
        "storage barriers": [("workgroupBarrier", "storageBarrier")],
        "leaves before the barrier": [
            ("near[me] = select(0.0, x[id.x], id.x < n);", "if (id.x >= n) {\n return;\n }\n near[me] = x[id.x];")
        ],
        "no guard": [("select(0.0, x[id.x], id.x < n)", "x[id.x]")],
        "one round too few": [("step = 32u", "step = 16u")],
        "no last round": [("step > 0u", "step > 1u")],
        "by the invocation's number": [("partial[group.x]", "partial[id.x]")],
        "steps grow": [("step /= 2u", "step -= 1u")],
        "everybody writes": [
            ("if (me == 0u) {\n        partial[group.x] = near[0];\n    }", "partial[id.x] = near[0];")
        ],
        "the last one writes": [("me == 0u", "me == 63u"), ("near[0]", "near[63]")],
        "one too far": [
            ("partial[group.x] = near[0];", "partial[group.x] = near[0];\n        partial[group.x + 1u] = 0.0;")
        ],
        "endless": [("step /= 2u", "step *= 1u")],
        "everybody adds": [("if (me < step) {", "{")],
        "one adds too much": [("me < step", "me <= step")],
        "a scan with one barrier": [
            ("var step = 32u; step > 0u; step /= 2u", "var step = 1u; step < 64u; step *= 2u"),
            ("me < step", "me + step < 64u"),
        ],
        "a barrier in the first round alone": [
            ("        }\n        workgroupBarrier();", "        }\n        if (step == 32u) { workgroupBarrier(); }")
        ],
        "barriers in two rounds": [
            ("        }\n        workgroupBarrier();", "        }\n        if (step > 8u) { workgroupBarrier(); }")
        ],
        "barriers in three rounds": [
            ("        }\n        workgroupBarrier();", "        }\n        if (step > 4u) { workgroupBarrier(); }")
        ],
        "barriers before the rounds, another one writes": [
            ("    workgroupBarrier();\n    for", "    for"),
            ("        }\n        workgroupBarrier();", "        }"),
            ("        if (me < step)", "        workgroupBarrier();\n        if (me < step)"),
            ("me == 0u", "me == 1u"),
        ],
        "all write the sum": [("if (me == 0u) {", "{")],
        "a pointer without barriers": [
            ("    for (var", "    let mine = &near[me];\n    for (var"),
            (
                "near[me] += near[me + step];\n        }\n        workgroupBarrier();",
                "(*mine) += near[me + step];\n        }",
            ),
        ],
        "writes outside": [("near[me] = select", "near[me + 64u] = 1.0;\n    near[me] = select")],
        "leaves the zeros to WGSL": [
            ("near[me] = select(0.0, x[id.x], id.x < n);", "if (id.x < n) { near[me] = x[id.x]; }")
        ],
    },
}
# Each is right and written otherwise: {name: (copy, round, end)}; SUM_OF puts barriers around the rounds.
SUM_OF = """    {copy}
    workgroupBarrier();
    for (var step = 32u; step > 0u; step /= 2u) {{
        {add}
        workgroupBarrier();
    }}
    {end}"""
COPY = "near[me] = select(0.0, x[id.x], id.x < n);"
END = "if (me == 0u) { partial[group.x] = near[0]; }"
ADDS = {
    "fma": "if (me < step) { near[me] = fma(near[me + step], 1.0, near[me]); }",
    "a pointer": "let mine = &near[me]; if (me < step) { *mine += near[me + step]; }",
    "select": "near[me] += select(0.0, near[me + step], me < step);",
    "a value kept over a barrier": "let other = near[me + step]; workgroupBarrier(); near[me] += other;",
    "signed": "if (i32(me) < i32(step)) { near[me] += near[i32(me) + i32(step)]; }",
    "mirrored": "if (me < step) { near[me] += near[2u * step - 1u - me]; }",
    "one barrier more, of the other kind": "if (me < step) { near[me] += near[me + step]; } storageBarrier();",
}
ENDS = {
    "a load for all": "let all = workgroupUniformLoad(&near[0]); if (me == 5u) { partial[group.x] = all; }",
    "a return after the last barrier": "if (me > 0u) { return; } partial[group.x] = near[0];",
}
ADD = "if (me < step) { near[me] += near[me + step]; }"
RIGHT = {
    1: {
        "nested": SAXPY.format(
            body="    if (id.x < told.n) { let scaled = told.alpha * x[id.x]; out[id.x] = scaled + y[id.x]; }"
        ),
        "own names and a function": SAXPY_SPLIT,
        "a constant for the size of the group": SAXPY.format(
            body="    if (id.x < told.n) { out[id.x] = fma(told.alpha, x[id.x], y[id.x]); }"
        )
        .replace("@compute", "const WIDE = 64u;\n\n@compute")
        .replace("size(64)", "size(WIDE)"),
        "a loop of one": SAXPY.format(
            body="    for (var i = id.x; i < min(id.x + 1u, told.n); i += 1u) { out[i] = y[i] + x[i] * told.alpha; }"
        ),
    },
    2: {
        "two sums": DENSE.format(
            body="""    let all = sizes.x * sizes.z;
    if (id.x < all) {
        let row = id.x / sizes.z; let column = id.x - row * sizes.z;
        var even = 0.0; var odd = 0.0;
        for (var k = 0u; k < sizes.y; k += 2u) { even += inputs[row * sizes.y + k] * weights[k * sizes.z + column]; }
        for (var k = 1u; k < sizes.y; k += 2u) { odd += inputs[row * sizes.y + k] * weights[k * sizes.z + column]; }
        let value = even + odd + bias[column];
        outputs[id.x] = select(value, max(value, 0.0), sizes.w != 0u);
    }"""
        ),
        "while, pointers running along": DENSE.format(
            body="""    if (id.x >= sizes.x * sizes.z) { return; }
    var a = (id.x / sizes.z) * sizes.y;
    var w = id.x % sizes.z;
    let end = a + sizes.y;
    var sum = 0.0;
    while a < end { sum = fma(inputs[a], weights[w], sum); a += 1u; w += sizes.z; }
    sum += bias[id.x % sizes.z];
    if (sizes.w > 0u && sum < 0.0) { sum = 0.0; }
    outputs[id.x] = sum;"""
        ),
        "loop with break": DENSE.format(
            body="""    let n = sizes.x; let wide = sizes.y; let many = sizes.z;
    if (id.x >= n * many) { return; }
    let row = id.x / many; let column = id.x % many;
    var sum = bias[column]; var k = 0u;
    loop { if (k == wide) { break; } sum += inputs[row * wide + k] * weights[k * many + column]; k++; }
    if (sizes.w == 1u) { sum = max(0.0, sum); }
    outputs[row * many + column] = sum;"""
        ),
    },
    3: {
        "one invocation adds what is near": SUMS.format(
            body="""    if (id.x < n) { near[me] = x[id.x]; } else { near[me] = 0.0; }
    workgroupBarrier();
    if (me == 0u) {
        var sum = 0.0;
        for (var i = 0u; i < 64u; i++) { sum += near[i]; }
        partial[group.x] = sum;
    }"""
        ),
        "the barrier first": SUMS.format(
            body="""    near[me] = 0.0;
    if (id.x < n) { near[me] = x[id.x]; }
    for (var step = 32u; step > 0u; step = step >> 1u) {
        workgroupBarrier();
        if (me < step) { near[me] = near[me] + near[me + step]; }
    }
    if (me == 0u) { partial[group.x] = near[0]; }"""
        ),
        "neighbours first": SUMS.format(
            body="""    var mine = 0.0;
    if (id.x < n) { mine = x[id.x]; }
    near[me] = mine;
    workgroupBarrier();
    for (var stride = 1u; stride < 64u; stride *= 2u) {
        let index = 2u * stride * me;
        if (index + stride < 64u) { near[index] += near[index + stride]; }
        workgroupBarrier();
    }
    if (me == 0u) { partial[group.x] = near[0]; }"""
        ),
        "written out": SUMS.format(
            body="""    near[me] = select(0.0, x[min(id.x, n - 1u)], id.x < n);
    workgroupBarrier();
    if (me < 32u) { near[me] += near[me + 32u]; } workgroupBarrier();
    if (me < 16u) { near[me] += near[me + 16u]; } workgroupBarrier();
    if (me < 8u) { near[me] += near[me + 8u]; } workgroupBarrier();
    if (me < 4u) { near[me] += near[me + 4u]; } workgroupBarrier();
    if (me < 2u) { near[me] += near[me + 2u]; } workgroupBarrier();
    if (me < 1u) { partial[group.x] = near[0] + near[1]; }"""
        ),
    },
}
RIGHT[3] |= {name: SUMS.format(body=SUM_OF.format(copy=COPY, add=add, end=END)) for name, add in ADDS.items()}
RIGHT[3] |= {name: SUMS.format(body=SUM_OF.format(copy=COPY, add=ADD, end=end)) for name, end in ENDS.items()}
RIGHT[3]["a function"] = SUMS.format(
    body=SUM_OF.format(copy=COPY, add="if (me < step) { add(me, me + step); }", end=END)
).replace("@compute", "fn add(a: u32, b: u32) { near[a] += near[b]; }\n\n@compute")
RIGHT[3]["a loop that counts down"] = SUMS.format(
    body=f"""    {COPY}
    workgroupBarrier();
    for (var k = 5i; k >= 0; k--) {{
        let step = 1u << u32(k);
        if (me < step) {{ near[me] += near[me + step]; }}
        workgroupBarrier();
    }}
    {END}"""
)
