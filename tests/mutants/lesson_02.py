"""Wrong answers to lesson 02's exercises that look right, and right answers written otherwise."""

FILL = """    near[l + 1] = i < n ? x[i] : 0;
    if (l == 0 && i > 0) {
        near[0] = x[i - 1];
    }
    if (l == last && i + 1 < n) {
        near[l + 2] = x[i + 1];
    }
"""
BARRIER = "    barrier(CLK_LOCAL_MEM_FENCE);\n"
MEAN = "(near[l] + near[l + 1] + near[l + 2]) / 3.0f"
BARRIER_IN_EACH_BRANCH = """    near[l + 1] = i < n ? x[i] : 0;
    if (l == 0) {
        if (i > 0) near[0] = x[i - 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    } else if (l == last) {
        if (i + 1 < n) near[l + 2] = x[i + 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    } else {
        barrier(CLK_LOCAL_MEM_FENCE);
    }
"""
HALO_WITH_BARRIER = """    near[l + 1] = i < n ? x[i] : 0;
    if (l == 0 || l == last) {
        if (l == 0 && i > 0) near[0] = x[i - 1];
        if (l == last && i + 1 < n) near[l + 2] = x[i + 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
"""
ONE_FOR_ALL = """    if (l == 0) {
        for (int j = -1; j <= last + 1; j++) {
            near[j + 1] = i + j >= 0 && i + j < n ? x[i + j] : 0;
        }
    }
"""
LOADS = """        float upper = row < m ? a[row * k + i] : 0, lower = row + 1 < m ? a[(row + 1) * k + i] : 0;
        float left = column < n ? b[i * n + column] : 0, right = column + 1 < n ? b[i * n + column + 1] : 0;
"""
SUMS = """        upper_left += upper * left;
        upper_right += upper * right;
        lower_left += lower * left;
        lower_right += lower * right;
"""
EACH_LOADS_ITS_OWN = """        if (row < m && column < n) upper_left += a[row * k + i] * b[i * n + column];
        if (row < m && column + 1 < n) upper_right += a[row * k + i] * b[i * n + column + 1];
        if (row + 1 < m && column < n) lower_left += a[(row + 1) * k + i] * b[i * n + column];
        if (row + 1 < m && column + 1 < n) lower_right += a[(row + 1) * k + i] * b[i * n + column + 1];
"""
LAST_WRITE = """    if (row + 1 < m && column + 1 < n) {
        c[(row + 1) * n + column + 1] = lower_right;
    }
"""
LAUNCH = "int column = 2 * get_global_id(0), row = 2 * get_global_id(1);"

MUTANTS = {
    1: {
        "no barrier": [("barrier(CLK_LOCAL_MEM_FENCE);", "")],
        "no left neighbour of the group": [("near[0] = x[i - 1];", "near[0] = 0;")],
        "no right neighbour of the group": [("near[l + 2] = x[i + 1];", "near[l + 2] = 0;")],
        "reads before the array": [("l == 0 && i > 0", "l == 0")],
        "reads past the array": [("l == last && i + 1 < n", "l == last")],
        "reads past the array where a group ends": [("l == last && i + 1 < n", "l == last && i < n")],
        "groups of 64 alone": [("l == last &&", "l == 63 &&")],
        "the place behind 64": [("near[l + 2] = x[i + 1]", "near[65] = x[i + 1]")],
        "returns before the barrier": [
            ("    near[l + 1] = i < n ? x[i] : 0;", "    if (i >= n) return;\n    near[l + 1] = x[i];")
        ],
        "no guard": [("if (i >= n) {\n        return;\n    }", "")],
        "sums neighbours from global memory": [
            ("(near[l] + near[l + 1] + near[l + 2])", "(x[i - 1] + x[i] + x[i + 1])")
        ],
        "every work-item reads its neighbours": [("l == 0 && i > 0", "i > 0 && i <= n"), ("near[0]", "near[l]")],
        "the right neighbour from x": [("near[l + 2]) / 3.0f", "x[i + 1]) / 3.0f")],
        "the first and the last of a group from x": [
            (
                "if (i == 0 || i == n - 1) {",
                "if (i > 0 && i < n - 1 && (l == 0 || l == last)) {\n        "
                "out[i] = (x[i - 1] + x[i] + x[i + 1]) / 3.0f;\n    } else if (i == 0 || i == n - 1) {",
            ),
        ],
        "the edges are smoothed": [("if (i == 0 || i == n - 1)", "if (i < 0)")],
        "own element twice": [("near[l] + near[l + 1] + near[l + 2]", "near[l] + near[l + 1] + near[l + 1]")],
        "one neighbour outside local memory, by vload3": [
            (FILL, ""),
            (BARRIER, ""),
            (MEAN, "dot(vload3(0, x + i - 1), (float3)(1.0f)) / 3.0f"),
            ("out[i] = near[l + 1]", "out[i] = x[i]"),
        ],
        "no local memory, through pointers": [
            (FILL, ""),
            (BARRIER, ""),
            (MEAN, "(*(x + i - 1) + *(x + i) + *(x + i + 1)) / 3.0f"),
            ("out[i] = near[l + 1]", "out[i] = *(x + i)"),
        ],
        "reads before the array through a pointer": [("l == 0 && i > 0", "l == 0"), ("x[i - 1]", "*(x + i - 1)")],
        "reads past the array through a pointer": [
            ("l == last && i + 1 < n", "l == last"),
            ("x[i + 1]", "*(x + i + 1)"),
        ],
        "a barrier in each of three branches": [
            (FILL, BARRIER_IN_EACH_BRANCH),
            (BARRIER + "    if (i >= n)", "    if (i >= n)"),
        ],
        "the barrier in the branch of the edges": [
            (FILL, HALO_WITH_BARRIER),
            (BARRIER + "    if (i >= n)", "    if (i >= n)"),
        ],
        "a fence for global memory alone": [("CLK_LOCAL_MEM_FENCE", "CLK_GLOBAL_MEM_FENCE")],
        "a barrier without a fence": [("CLK_LOCAL_MEM_FENCE", "0")],
        "near is too small": [("near[66]", "near[34]")],
        "one work-item copies for all": [(FILL, ONE_FOR_ALL)],
    },
    2: {
        "no guard for the rows": [
            ("row < m && column < n", "column < n"),
            ("row < m && column + 1 < n", "column + 1 < n"),
        ],
        "guards ask for whole blocks": [("if (row < m && column < n)", "if (row + 1 < m && column + 1 < n)")],
        "guards one too wide": [("if (row + 1 < m && column < n)", "if (row + 1 <= m && column < n)")],
        "writes the next row's first column": [("if (row < m && column + 1 < n)", "if (row < m)")],
        "no guard for the last element": [(LAST_WRITE, "    c[(row + 1) * n + column + 1] = lower_right;\n")],
        "reads below A": [("row + 1 < m ? a[(row + 1) * k + i] : 0", "a[(row + 1) * k + i]")],
        "reads beyond the end of B": [("column + 1 < n ? b[i * n + column + 1] : 0", "b[i * n + column + 1]")],
        "reads before the guard": [("row < m ? a[row * k + i] : 0", "a[row * k + i]")],
        "reads beyond the end of B by vload2": [
            (
                "float left = column < n ? b[i * n + column] : 0, right = column + 1 < n ? b[i * n + column + 1] : 0;",
                "float2 pair = vload2(0, b + i * n + column); float left = pair.x, right = pair.y;",
            ),
        ],
        "one sum starts anywhere": [("lower_right = 0", "lower_right")],
        "sums that start anywhere": [("upper_left = 0, upper_right = 0", "upper_left, upper_right")],
        "writes C in every step": [
            (SUMS, SUMS + "        if (row < m && column < n) c[row * n + column] = upper_left;\n")
        ],
        "8 bits for the column": [
            ("int column = 2 * get_global_id(0), row", "uchar column = 2 * get_global_id(0); int row")
        ],
        "reads one too far": [("i < k", "i <= k")],
        "each sum loads its own numbers": [(LOADS, ""), (SUMS, EACH_LOADS_ITS_OWN)],
        "rows and columns swapped in C": [("c[row * n + column] =", "c[column * n + row] =")],
        "rows in dimension 0": [(LAUNCH, "int row = 2 * get_global_id(0), column = 2 * get_global_id(1);")],
        "blocks overlap": [("2 * get_global_id(0)", "get_global_id(0)")],
        "one block for the group": [("2 * get_global_id(0)", "2 * get_group_id(0)")],
        "left and right swapped": [("upper_left += upper * left", "upper_left += upper * right")],
        "forgets a sum": [("        lower_right += lower * right;\n", "")],
        "adds to what C held": [("c[row * n + column] =", "c[row * n + column] +=")],
        "stops early": [("i < k", "i < k - 1")],
        "begins late": [("int i = 0", "int i = 1")],
        "sums of whole numbers": [("float upper_left", "int upper_left")],
        "16 bits for the row's place": [("c[row * n + column] =", "c[(ushort)(row * n + column)] =")],
        "the width of A": [("a[row * k + i]", "a[row * m + i]")],
        "changes its input": [(SUMS, SUMS + "        ((__global float *)a)[row * k + i] = 0;\n")],
        "only multiples of two": [(LAUNCH, LAUNCH + "\n    if (m % 2 || n % 2) return;")],
        "one work-item does it all": [
            (
                LAUNCH,
                "if (get_global_id(0) || get_global_id(1)) return;\n    for (int row = 0; row < m; row += 2)\n"
                "    for (int column = 0; column < n; column += 2) {",
            ),
            (LAST_WRITE, LAST_WRITE + "    }\n"),
        ],
        "writes far outside": [("c[row * n + column] =", "c[row * n + column + 400000000] =")],
        "does not compile": [("        upper_left +=", "        upper_lift +=")],
        "another parameter": [("int n, int k) {", "int n, float k) {")],
    },
    3: {
        "forgets the registers of the vectors": [("rows * vectors + vectors + 1 <=", "rows * vectors + 1 <=")],
        "forgets the register of the number": [("rows * vectors + vectors + 1 <=", "rows * vectors + vectors <=")],
        "one register too few": [("<= registers", "< registers")],
        "a register for each number of A": [("rows * vectors + vectors + 1", "rows * vectors + vectors + rows")],
        "multiply-adds for one load": [("(rows + vectors) / (rows * vectors)", "(rows * vectors) / (rows + vectors)")],
        "square blocks alone": [("if rows", "if rows == vectors and rows")],
        "one vector": [("in range(1, registers + 1):\n            if", "in (1,):\n            if")],
        "the most": [('float("inf")', "0"), ("min(", "max(")],
        "loops up to 10": [
            ("range(1, registers + 1):\n        for", "range(1, 11):\n        for"),
            ("range(1, registers + 1):\n            if", "range(1, 11):\n            if"),
        ],
    },
}

SMOOTH = """
__kernel void smooth(__global const float *x, __global float *out, const int n) {
%s
    if (i >= n) {
        return;
    }
    out[i] = i == 0 || i == n - 1 ? ENDS : (near[l] + near[l + 1] + near[l + 2]) / 3.0f;
}
"""
NEAR = """    __local float near[66];
    int i = get_global_id(0), l = get_local_id(0), last = get_local_size(0) - 1;
"""
CLAMPED = """    near[l + 1] = x[min(i, n - 1)];
    if (l == 0) near[0] = x[clamp(i - 1, 0, n - 1)];
    if (l == last) near[l + 2] = x[min(i + 1, n - 1)];
"""
BLOCK = """
__kernel void block(__global const float *a, __global const float *b, __global float *c, int m, int n, int k) {
%s
}
"""


def smooth(body: str, ends: str = "near[l + 1]") -> str:
    return f'smooth = """{SMOOTH.replace("ENDS", ends) % body}"""'


def block(body: str) -> str:
    return f'block = """{BLOCK % body}"""'


RIGHT = {
    1: {
        "the global id from the group's": smooth(
            NEAR.replace("get_global_id(0)", "get_group_id(0) * get_local_size(0) + get_local_id(0)") + FILL + BARRIER
        ),
        "filled with a stride": smooth(
            NEAR
            + """    int size = get_local_size(0), start = get_group_id(0) * size - 1;
    for (int j = l; j < size + 2; j += size) {
        if (start + j >= 0 && start + j < n) near[j] = x[start + j];
    }
"""
            + BARRIER
        ),
        "copied by the group": smooth(
            NEAR
            + """    int size = get_local_size(0), start = get_group_id(0) * size;
    event_t copied = async_work_group_copy(near + 1, x + start, min(size, n - start), 0);
    wait_group_events(1, &copied);
    if (l == 0 && i > 0) near[0] = x[i - 1];
    if (l == last && i + 1 < n) near[l + 2] = x[i + 1];
"""
            + BARRIER
        ),
        "work_group_barrier": smooth(NEAR + FILL + "    work_group_barrier(CLK_LOCAL_MEM_FENCE);\n"),
        "a macro round the barrier": smooth(
            "#define WAIT barrier(CLK_LOCAL_MEM_FENCE)\n" + NEAR + FILL + "    WAIT;\n"
        ),
        "a branch that all take": smooth(NEAR + FILL + "    if (n > 0) {\n    " + BARRIER + "    }\n"),
        "clamped indices": smooth(NEAR + CLAMPED + BARRIER),
        "the ends from x": smooth(NEAR + FILL + BARRIER, ends="x[i]"),
        "clamped indices, the ends from x": smooth(NEAR + CLAMPED + BARRIER, ends="x[i]"),
        "clamped in local memory": """
smooth = '''
__kernel void smooth(__global const float *x, __global float *out, const int n) {
    __local float near[66];
    int i = get_global_id(0), l = get_local_id(0), size = get_local_size(0), start = get_group_id(0) * size - 1;
    for (int j = l; j < size + 2; j += size) near[j] = x[clamp(start + j, 0, n - 1)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < n) out[i] = i > 0 && i < n - 1 ? (near[l] + near[l + 1] + near[l + 2]) / 3 : near[l + 1];
}
'''
""",
        "both fences": smooth(NEAR + FILL + "    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);\n"),
    },
    2: {
        "clamped to the last row and column": block("""
    int column = 2 * get_global_id(0), row = 2 * get_global_id(1);
    if (row >= m || column >= n) return;
    int below = min(row + 1, m - 1), beside = min(column + 1, n - 1);
    float s00 = 0, s01 = 0, s10 = 0, s11 = 0;
    for (int i = 0; i < k; i++) {
        float a0 = a[row * k + i], a1 = a[below * k + i], b0 = b[i * n + column], b1 = b[i * n + beside];
        s00 = fma(a0, b0, s00);
        s01 = fma(a0, b1, s01);
        s10 = fma(a1, b0, s10);
        s11 = fma(a1, b1, s11);
    }
    c[row * n + column] = s00;
    if (column + 1 < n) c[row * n + column + 1] = s01;
    if (row + 1 < m) {
        c[(row + 1) * n + column] = s10;
        if (column + 1 < n) c[(row + 1) * n + column + 1] = s11;
    }"""),
        "arrays and loops": block("""
    int column = 2 * get_global_id(0), row = 2 * get_global_id(1);
    float sums[2][2] = {{0, 0}, {0, 0}};
    for (int i = 0; i < k; i++) {
        float left[2], top[2];
        for (int y = 0; y < 2; y++) left[y] = row + y < m ? a[(row + y) * k + i] : 0;
        for (int x = 0; x < 2; x++) top[x] = column + x < n ? b[i * n + column + x] : 0;
        for (int y = 0; y < 2; y++)
            for (int x = 0; x < 2; x++) sums[y][x] += left[y] * top[x];
    }
    for (int y = 0; y < 2; y++)
        for (int x = 0; x < 2; x++)
            if (row + y < m && column + x < n) c[(row + y) * n + column + x] = sums[y][x];"""),
        "ids from the group's": block("""
    int column = 2 * (get_group_id(0) * get_local_size(0) + get_local_id(0));
    int row = 2 * (get_group_id(1) * get_local_size(1) + get_local_id(1));
    float2 upper = 0, lower = 0;
    for (int i = k - 1; i >= 0; i--) {
        float2 pair = (float2)(column < n ? b[i * n + column] : 0, column + 1 < n ? b[i * n + column + 1] : 0);
        if (row < m) upper += a[row * k + i] * pair;
        if (row + 1 < m) lower += a[(row + 1) * k + i] * pair;
    }
    for (int y = row; y < min(row + 2, m); y++) {
        float2 sums = y == row ? upper : lower;
        if (column < n) c[y * n + column] = sums.x;
        if (column + 1 < n) c[y * n + column + 1] = sums.y;
    }"""),
        "vload2 where both exist": block("""
    size_t column = get_global_id(0) * 2, row = get_global_id(1) * 2;
    if (row >= m || column >= n) return;
    bool wide = column + 1 < n, high = row + 1 < m;
    float4 sums = (float4)(0);
    for (int i = 0; i < k; i++) {
        float2 b_pair = wide ? vload2(0, b + i * n + column) : (float2)(b[i * n + column], 0);
        float2 a_pair = (float2)(a[row * k + i], high ? a[(row + 1) * k + i] : 0);
        sums += a_pair.xxyy * b_pair.xyxy;
    }
    c[row * n + column] = sums.s0;
    if (wide) c[row * n + column + 1] = sums.s1;
    if (high) c[(row + 1) * n + column] = sums.s2;
    if (high && wide) c[(row + 1) * n + column + 1] = sums.s3;"""),
        "pointers to the rows": block("""
    const int column = 2 * get_global_id(0), row = 2 * get_global_id(1);
    __global const float *top = a + row * k, *bottom = top + k, *here = b + column;
    float s[4] = {0};
    if (row < m && column < n) {
        for (int i = 0; i < k; ++i, here += n) {
            float p = top[i], q = row + 1 < m ? bottom[i] : 0, v = here[0], w = column + 1 < n ? here[1] : 0;
            s[0] += p * v; s[1] += p * w; s[2] += q * v; s[3] += q * w;
        }
        for (int j = 0; j < 4; j++)
            if (row + j / 2 < m && column + j % 2 < n) c[(row + j / 2) * n + column + j % 2] = s[j];
    }"""),
        "columns half the width apart": block("""
    int half_n = (n + 1) / 2, column = get_global_id(0), row = 2 * get_global_id(1), other = column + half_n;
    if (row >= m || column >= half_n) return;
    float p = 0, q = 0, r = 0, s = 0;
    for (int i = 0; i < k; i++) {
        float u = a[row * k + i], v = row + 1 < m ? a[(row + 1) * k + i] : 0;
        float x = b[i * n + column], y = other < n ? b[i * n + other] : 0;
        p += u * x, q += u * y, r += v * x, s += v * y;
    }
    c[row * n + column] = p;
    if (other < n) c[row * n + other] = q;
    if (row + 1 < m) c[(row + 1) * n + column] = r;
    if (row + 1 < m && other < n) c[(row + 1) * n + other] = s;"""),
    },
    3: {
        "the most rows for each number of vectors": """
def fewest_loads(registers):
    rows_for = {v: (registers - 1 - v) // v for v in range(1, registers)}
    return min(1 / rows + 1 / v for v, rows in rows_for.items() if rows > 0)
""",
        "NumPy": """
def fewest_loads(registers):
    rows, vectors = np.mgrid[1 : registers + 1, 1 : registers + 1]
    fits = rows * vectors + vectors < registers
    return ((rows + vectors) / (rows * vectors))[fits].min()
""",
    },
}
