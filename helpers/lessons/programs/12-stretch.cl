__kernel void stretch(__global const int *x, __global int *out, const int n) {
    __local int low[64];
    __local int high[64];
    int i = get_global_id(0), me = get_local_id(0);

    // put the numbers into local memory
    if (i < n) {
        low[me] = x[i];
        high[me] = x[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // all numbers are there

    // find the smallest and the largest number of the group, as a tree
    for (int step = 32; step > 0; step /= 2) {
        if (me < step) {
            low[me] = min(low[me], low[me + step]);
            high[me] = max(high[me], high[me + step]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // the tree is complete

    // place each number between them; equal numbers become 50
    if (i <= n) {
        int span = high[0] - low[0];
        out[i] = span == 0 ? 50 : 100 * (x[i] - low[0]) / span;
    }
}
