// Kernels of single-precision matrices in row-major order and of vectors. Every kernel bounds each
// access by the lengths it is given, so that any grid is safe.

#define TILE 16
#define THREADS 256

// out[rows][columns] = a[rows][inner] * b[inner][columns], a tile of a and b at a time in shared
// memory. Blocks of TILE x TILE threads.
extern "C" __global__ void matmul(const float *a, const float *b, float *out, unsigned int rows,
                                  unsigned int inner, unsigned int columns)
{
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    unsigned int x = threadIdx.x, y = threadIdx.y;
    size_t row = (size_t)blockIdx.y * TILE + y, column = (size_t)blockIdx.x * TILE + x;
    float sum = 0.0f;
    for (size_t at = 0; at < inner; at += TILE) {
        size_t of_a = at + x, of_b = at + y;
        tile_a[y][x] = row < rows && of_a < inner ? a[row * inner + of_a] : 0.0f;
        tile_b[y][x] = of_b < inner && column < columns ? b[of_b * columns + column] : 0.0f;
        __syncthreads();
        for (unsigned int k = 0; k < TILE; k++)
            sum += tile_a[y][k] * tile_b[k][x];
        __syncthreads();
    }
    if (row < rows && column < columns)
        out[row * columns + column] = sum;
}

// out[i] = a[i] + b[i]
extern "C" __global__ void add(const float *a, const float *b, float *out, unsigned long long length)
{
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < length;
         i += step)
        out[i] = a[i] + b[i];
}

// out[block] = the sum of the elements that the block visits, added in a fixed order. Blocks of
// THREADS threads.
extern "C" __global__ void sum(const float *in, float *out, unsigned long long length)
{
    __shared__ float part[THREADS];
    unsigned long long step = (unsigned long long)gridDim.x * THREADS;
    float own = 0.0f;
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x; i < length;
         i += step)
        own += in[i];
    part[threadIdx.x] = own;
    __syncthreads();
    for (unsigned int width = THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width)
            part[threadIdx.x] += part[threadIdx.x + width];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}
