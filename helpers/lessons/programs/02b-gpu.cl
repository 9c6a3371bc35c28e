// C = A B for a GPU. A work-group computes a tile of C, and each of its work-items SUMS x SUMS numbers of that tile.
// m and n are multiples of TILE, and k is a multiple of DEPTH: `fit` adds zeros to matrices of other sizes.
// TILE, DEPTH, SUMS and BUFFERS are the numbers to choose, such as 128, 8, 8 and 2. The others follow from them:
#define ACROSS (TILE / SUMS)              // work-items beside each other, and as many below each other: 16
#define ITEMS (ACROSS * ACROSS)           // work-items of a group: 256
#define BLOCKS (SUMS / 4)                 // the numbers of a work-item form BLOCKS x BLOCKS blocks of 4 x 4: 2
#define LOADS (TILE * DEPTH / 4 / ITEMS)  // float4 of A that a work-item loads for each slab, and as many of B: 1

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void multiply(__global const float4 *restrict a, __global const float4 *restrict b, __global float4 *restrict c,
              int n, int k) {
    // One slab is DEPTH columns of A, transposed so that a float4 holds four rows, and DEPTH rows of B.
    // A row of a_tile is 4 floats longer than the tile: without them, stores of neighbors hit the same banks.
    __local float a_tile[BUFFERS][DEPTH][TILE + 4] __attribute__((aligned(16)));
    __local float4 b_tile[BUFFERS][DEPTH][TILE / 4];
    float4 next_a[LOADS], next_b[LOADS], sums[SUMS][BLOCKS];

    uint item = get_local_id(0), slabs = k / DEPTH;
    uint top = get_group_id(1) * TILE, left = get_group_id(0) * TILE;  // where the group's tile of C begins
    // 32 neighbors compute blocks in 8 columns and 4 rows: together they read only 8 float4 of B and 4 of A.
    uint x = item % 8 + item / (8 * ACROSS) * 8, y = item / 8 % ACROSS;

    #pragma unroll
    for (int row = 0; row < SUMS; row++) {
        #pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            sums[row][block] = 0;
        }
    }
    // The first slab: load it, and store it in local memory.
    #pragma unroll
    for (int load = 0; load < LOADS; load++) {
        uint number = item + load * ITEMS;
        uint a_row = number / 2 % TILE, a_column = number % 2 + number / (2 * TILE) * 2;
        uint b_row = number / (TILE / 4), b_column = number % (TILE / 4);
        next_a[load] = a[(top + a_row) * (k / 4) + 0 * (DEPTH / 4) + a_column];
        next_b[load] = b[(0 * DEPTH + b_row) * (n / 4) + left / 4 + b_column];
    }
    #pragma unroll
    for (int load = 0; load < LOADS; load++) {
        uint number = item + load * ITEMS;
        uint a_row = number / 2 % TILE, a_column = number % 2 + number / (2 * TILE) * 2;
        uint b_row = number / (TILE / 4), b_column = number % (TILE / 4);
        a_tile[0][4 * a_column + 0][a_row] = next_a[load].x;
        a_tile[0][4 * a_column + 1][a_row] = next_a[load].y;
        a_tile[0][4 * a_column + 2][a_row] = next_a[load].z;
        a_tile[0][4 * a_column + 3][a_row] = next_a[load].w;
        b_tile[0][b_row][b_column] = next_b[load];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint slab = 0; slab < slabs; slab++) {
        uint now = slab % BUFFERS;
        // 1. Ask for the next slab. It is on its way into registers while step 2 multiplies.
        if (slab + 1 < slabs) {
            #pragma unroll
            for (int load = 0; load < LOADS; load++) {
                uint number = item + load * ITEMS;
                uint a_row = number / 2 % TILE, a_column = number % 2 + number / (2 * TILE) * 2;
                uint b_row = number / (TILE / 4), b_column = number % (TILE / 4);
                next_a[load] = a[(top + a_row) * (k / 4) + (slab + 1) * (DEPTH / 4) + a_column];
                next_b[load] = b[((slab + 1) * DEPTH + b_row) * (n / 4) + left / 4 + b_column];
            }
        }
        // 2. Multiply the slab that is in local memory.
        #pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            float4 a_part[BLOCKS], b_part[BLOCKS];
            #pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                b_part[block] = b_tile[now][i][x + block * ACROSS];
            }
            #pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                a_part[block] = ((__local float4 *)a_tile[now][i])[y + block * ACROSS];
            }
            #pragma unroll
            for (int below = 0; below < BLOCKS; below++) {
                #pragma unroll
                for (int block = 0; block < BLOCKS; block++) {
                    sums[4 * below + 0][block] += a_part[below].x * b_part[block];
                    sums[4 * below + 1][block] += a_part[below].y * b_part[block];
                    sums[4 * below + 2][block] += a_part[below].z * b_part[block];
                    sums[4 * below + 3][block] += a_part[below].w * b_part[block];
                }
            }
        }
        if (BUFFERS == 1) {
            barrier(CLK_LOCAL_MEM_FENCE);  // all have read the slab that step 3 overwrites
        }
        // 3. Store the next slab in local memory. After the last slab it holds an old one, which nobody reads.
        uint next = (slab + 1) % BUFFERS;
        #pragma unroll
        for (int load = 0; load < LOADS; load++) {
            uint number = item + load * ITEMS;
            uint a_row = number / 2 % TILE, a_column = number % 2 + number / (2 * TILE) * 2;
            uint b_row = number / (TILE / 4), b_column = number % (TILE / 4);
            a_tile[next][4 * a_column + 0][a_row] = next_a[load].x;
            a_tile[next][4 * a_column + 1][a_row] = next_a[load].y;
            a_tile[next][4 * a_column + 2][a_row] = next_a[load].z;
            a_tile[next][4 * a_column + 3][a_row] = next_a[load].w;
            b_tile[next][b_row][b_column] = next_b[load];
        }
        barrier(CLK_LOCAL_MEM_FENCE);  // all have stored the slab that step 2 reads next
    }
    #pragma unroll
    for (int row = 0; row < SUMS; row++) {
        #pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            uint c_row = top + 4 * (y + row / 4 * ACROSS) + row % 4;
            c[c_row * (n / 4) + left / 4 + x + block * ACROSS] = sums[row][block];
        }
    }
}

// Copy a matrix of rows x columns into one of another size. What the source lacks counts as 0.
__kernel void fit(__global const float *from, __global float *to, int rows, int columns, int to_columns) {
    int column = get_global_id(0), row = get_global_id(1);
    to[row * to_columns + column] = row < rows && column < columns ? from[row * columns + column] : 0;
}
