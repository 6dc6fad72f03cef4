//! Kernels on the stand-in, which checks and logs launches. NVRTC compiles them, so the tests skip
//! without it.
#![expect(clippy::print_stdout, reason = "a skipped test prints a note")]

use crate::stand_in::{StandIn, device, failing, log, on, on_each};
use gpu_core::{DeviceFault, ErrorKind, MachineFault};
use gpu_cuda::cudarc::driver::{CudaSlice, CudaStream};
use gpu_cuda::{CudaKernels, MatmulShape};
use std::sync::Arc;

/// Returns the kernels and a stream of the first device; `None` without NVRTC.
fn compiled() -> Option<(CudaKernels, Arc<CudaStream>)> {
    let context = gpu_cuda::open(&device(0)).unwrap();
    let stream = context.new_stream().unwrap();
    match CudaKernels::compile(&context) {
        Ok(kernels) => Some((kernels, stream)),
        Err(error) if error.kind() == MachineFault::NoLibrary.into() => {
            println!("skipped: {}", error.fault().text);
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn vector(stream: &Arc<CudaStream>, length: usize) -> CudaSlice<f32> {
    stream.alloc_zeros(length).unwrap()
}

/// Returns the launches in the log.
fn launches() -> Vec<String> {
    log().into_iter().filter(|line| line.contains(" blocks of ")).collect()
}

#[test]
fn grids_cover_matrices_and_vectors() {
    on(StandIn::default(), "kernels::grids_cover_matrices_and_vectors", || {
        let Some((kernels, stream)) = compiled() else { return };
        let (a, b, mut out) = (vector(&stream, 6), vector(&stream, 3 * 40), vector(&stream, 80));
        let shape = MatmulShape { rows: 2, inner: 3, columns: 40 };
        kernels.matmul(&stream, shape, (&a, &b), &mut out).unwrap();
        let (c, d, mut sum) = (vector(&stream, 600), vector(&stream, 600), vector(&stream, 600));
        kernels.add(&stream, (&c, &d), &mut sum).unwrap();
        let mut total = vector(&stream, 1);
        kernels.sum(&stream, &a, &mut total).unwrap();
        assert_eq!(
            launches(),
            [
                "matmul 3×1 blocks of 16×16 1",
                "add 3×1 blocks of 256×1 1",
                "sum 1×1 blocks of 256×1 1"
            ]
        );
        kernels.sum(&stream, &c, &mut total).unwrap();
        let second = &launches()[3..];
        assert_eq!(second, ["sum 3×1 blocks of 256×1 1", "sum 1×1 blocks of 256×1 1"]);
    });
}

#[test]
fn wrong_lengths_are_rejected_before_a_launch() {
    on(StandIn::default(), "kernels::wrong_lengths_are_rejected_before_a_launch", || {
        let Some((kernels, stream)) = compiled() else { return };
        let (a, mut out) = (vector(&stream, 6), vector(&stream, 4));
        let square = MatmulShape { rows: 2, inner: 3, columns: 2 };
        let longer = MatmulShape { rows: 3, ..square };
        let tall = vector(&stream, 1_048_561);
        let mut high = vector(&stream, 1_048_561);
        let column = MatmulShape { rows: 1_048_561, inner: 1, columns: 1 };
        let one = vector(&stream, 1);
        for error in [
            kernels.matmul(&stream, longer, (&a, &a), &mut out),
            kernels.matmul(&stream, square, (&a, &one), &mut out),
            kernels.matmul(&stream, square, (&a, &a), &mut high),
            kernels.matmul(&stream, column, (&tall, &one), &mut high),
            kernels.add(&stream, (&a, &one), &mut out),
            kernels.add(&stream, (&a, &a), &mut out),
        ] {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert_eq!(launches(), [""; 0]);
        kernels.matmul(&stream, square, (&a, &a), &mut out).unwrap();
        assert_eq!(launches().len(), 1);
    });
}

#[test]
fn failed_load_or_launch_is_reported() {
    let name = "kernels::failed_load_or_launch_is_reported";
    on_each(&failing(["cuModuleLoadData 1 209", "cuLaunchKernel 1 719"]), name, || {
        let context = gpu_cuda::open(&device(0)).unwrap();
        let stream = context.new_stream().unwrap();
        let error = match CudaKernels::compile(&context) {
            Ok(kernels) => {
                let (a, mut out) = (vector(&stream, 6), vector(&stream, 6));
                kernels.add(&stream, (&a, &a), &mut out).unwrap_err()
            }
            Err(error) if error.kind() == MachineFault::NoLibrary.into() => {
                return println!("skipped: {}", error.fault().text);
            }
            Err(error) => error,
        };
        let code = crate::stand_in::failing_code();
        assert_eq!(error.kind(), DeviceFault::Unknown(code).into(), "{error:?}");
    });
}
