__kernel void stretch(__global const int *x, __global int *out, const int n) {
    __local int low[64], high[64];
    int i = get_global_id(0), me = get_local_id(0);
    if (i < n) { low[me] = x[i]; high[me] = x[i]; }
    barrier(CLK_LOCAL_MEM_FENCE);  // all numbers are there
    for (int step = 32; step > 0; step /= 2) {  // the smallest and the largest of the group, as a tree
        if (me < step) {
            low[me] = min(low[me], low[me + step]);
            high[me] = max(high[me], high[me + step]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // the tree is complete
    if (i <= n) {
        int span = high[0] - low[0];
        out[i] = span == 0 ? 50 : 100 * (x[i] - low[0]) / span;
    }
}
