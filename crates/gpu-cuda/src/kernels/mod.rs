//! Kernels that are compiled at run time.

use crate::code::of_device;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts, sys};
use gpu_core::{Absent, Error, ErrorKind, MachineFault, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SOURCE: &str = include_str!("kernels.cu");

/// The number of threads along each side of a `matmul` block.
const TILE: u32 = 16;
/// The number of threads in a block of the other kernels.
const THREADS: u32 = 256;
/// The maximum number of blocks in a sum, and therefore of partial sums in its second step.
const PARTS: u32 = 1024;
/// The maximum number of blocks along the second dimension of a grid (CUDA C++ Programming Guide,
/// technical specifications per compute capability).
const MAX_BLOCKS: u32 = 65_535;

/// The dimensions of a product: `rows × inner` times `inner × columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulShape {
    /// Rows of the first matrix and of the product.
    pub rows: u32,
    /// Columns of the first matrix and rows of the second.
    pub inner: u32,
    /// Columns of the second matrix and of the product.
    pub columns: u32,
}

/// Kernels for one device, compiled by NVRTC on creation: matrix multiplication, vector addition
/// and vector sum, in single precision.
///
/// Each call enqueues its kernel on a stream and returns. The caller orders streams with cudarc's
/// events.
#[derive(Debug)]
pub struct CudaKernels {
    matmul: CudaFunction,
    add: CudaFunction,
    sum: CudaFunction,
}

impl CudaKernels {
    /// Compiles the kernels for the device of a context.
    ///
    /// # Errors
    /// `Machine(NoLibrary)` without NVRTC (`libnvrtc.so`), which is part of the CUDA toolkit, not
    /// of the driver; `Unsupported` if this NVRTC cannot compile for the device; `Device` for
    /// CUDA's error codes.
    pub fn compile(context: &Arc<CudaContext>) -> Result<Self> {
        let failed = |code| of_device(code, "load the kernels".to_owned());
        let (major, minor) = context.compute_capability().map_err(failed)?;
        let ptx = ptx(major.unsigned_abs(), minor.unsigned_abs())?;
        let module = context.load_module(ptx).map_err(failed)?;
        let function = |name| module.load_function(name).map_err(failed);
        Ok(CudaKernels {
            matmul: function("matmul")?,
            add: function("add")?,
            sum: function("sum")?,
        })
    }

    /// Enqueues `out = a × b` for matrices in row-major order.
    ///
    /// # Errors
    /// `Invalid` if a length does not match the shape, or if there are more than 1,048,560 rows;
    /// `Device` for CUDA's error codes.
    pub fn matmul(
        &self,
        stream: &CudaStream,
        shape: MatmulShape,
        (a, b): (&CudaSlice<f32>, &CudaSlice<f32>),
        out: &mut CudaSlice<f32>,
    ) -> Result<()> {
        let MatmulShape { rows, inner, columns } = shape;
        let what = || format!("multiply {rows}×{inner} by {inner}×{columns}");
        let has = |slice: &CudaSlice<f32>, [rows, columns]: [u32; 2]| {
            slice.len() as u64 == u64::from(rows) * u64::from(columns)
        };
        check(has(a, [rows, inner]), what, "the first matrix has the wrong length")?;
        check(has(b, [inner, columns]), what, "the second matrix has the wrong length")?;
        check(has(out, [rows, columns]), what, "the product has the wrong length")?;
        let blocks = (columns.div_ceil(TILE), rows.div_ceil(TILE));
        check(blocks.1 <= MAX_BLOCKS, what, "a grid has at most 65,535 blocks of 16 rows")?;
        if blocks.0 == 0 || blocks.1 == 0 {
            return Ok(());
        }
        let mut call = stream.launch_builder(&self.matmul);
        call.arg(a).arg(b).arg(out).arg(&rows).arg(&inner).arg(&columns);
        let config = LaunchConfig {
            grid_dim: (blocks.0, blocks.1, 1),
            block_dim: (TILE, TILE, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the arguments match the kernel, which bounds each access by these lengths.
        unsafe { call.launch(config) }.map_err(|code| of_device(code, what()))?;
        Ok(())
    }

    /// Enqueues `out = a + b`, element by element.
    ///
    /// # Errors
    /// `Invalid` if the lengths differ; `Device` for CUDA's error codes.
    pub fn add(
        &self,
        stream: &CudaStream,
        (a, b): (&CudaSlice<f32>, &CudaSlice<f32>),
        out: &mut CudaSlice<f32>,
    ) -> Result<()> {
        let length = a.len() as u64;
        let what = || format!("add vectors of {length} elements");
        check(b.len() == a.len() && out.len() == a.len(), what, "the lengths differ")?;
        if length == 0 {
            return Ok(());
        }
        let mut call = stream.launch_builder(&self.add);
        call.arg(a).arg(b).arg(out).arg(&length);
        // SAFETY: the arguments match the kernel, which bounds each access by this length.
        unsafe { call.launch(linear(length)) }.map_err(|code| of_device(code, what()))?;
        Ok(())
    }

    /// Enqueues the sum of a vector into the first element of `out`. The order of the additions
    /// depends only on the length, so equal inputs give equal sums.
    ///
    /// # Errors
    /// `Invalid` if `out` or the vector is empty; `Device` for CUDA's error codes.
    pub fn sum(
        &self,
        stream: &Arc<CudaStream>,
        input: &CudaSlice<f32>,
        out: &mut CudaSlice<f32>,
    ) -> Result<()> {
        let length = input.len() as u64;
        let what = || format!("sum a vector of {length} elements");
        check(length > 0, what, "it has no elements")?;
        check(!out.is_empty(), what, "the result has no element")?;
        let failed = |code: DriverError| of_device(code, what());
        let config = linear(length);
        let blocks = u64::from(config.grid_dim.0);
        if blocks == 1 {
            return self.partial_sums(stream, input, out, config).map_err(failed);
        }
        let mut parts = stream.alloc_zeros::<f32>(blocks as usize).map_err(failed)?;
        self.partial_sums(stream, input, &mut parts, config).map_err(failed)?;
        self.partial_sums(stream, &parts, out, LaunchConfig { grid_dim: (1, 1, 1), ..config })
            .map_err(failed)
    }

    fn partial_sums(
        &self,
        stream: &CudaStream,
        input: &CudaSlice<f32>,
        out: &mut CudaSlice<f32>,
        config: LaunchConfig,
    ) -> std::result::Result<(), DriverError> {
        let length = input.len() as u64;
        let mut call = stream.launch_builder(&self.sum);
        call.arg(input).arg(out).arg(&length);
        // SAFETY: the arguments match the kernel; `out` has an element for each block.
        unsafe { call.launch(config) }?;
        Ok(())
    }
}

/// Returns the grid for a vector: a block for each 256 elements, up to 1,024 blocks.
fn linear(length: u64) -> LaunchConfig {
    let blocks = length.div_ceil(u64::from(THREADS)).clamp(1, u64::from(PARTS));
    LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: 0,
    }
}

fn check(holds: bool, what: impl Fn() -> String, why: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::new(ErrorKind::Invalid, what()).with_source(why)) }
}

/// Compiles the kernels for a compute capability.
fn ptx(major: u32, minor: u32) -> Result<Ptx> {
    let what = || format!("compile the kernels for compute capability {major}.{minor}");
    if !is_present() {
        let why = "the dynamic loader cannot find libnvrtc.so, a part of the CUDA toolkit";
        return Err(Error::new(MachineFault::NoLibrary, what()).with_source(why));
    }
    let options = CompileOptions {
        options: vec![format!("--gpu-architecture=compute_{major}{minor}")],
        name: Some("kernels.cu".to_owned()),
        ..CompileOptions::default()
    };
    compile_ptx_with_opts(SOURCE, options).map_err(|error| refused(error, what()))
}

fn refused(error: CompileError, what: String) -> Error {
    match error {
        CompileError::CompileError { nvrtc, log, .. } => {
            let kind = match nvrtc.0 {
                // This NVRTC does not know the architecture, which is newer or older.
                sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION => ErrorKind::Unsupported,
                _ => Absent::NotSupported.into(),
            };
            let log = log.to_string_lossy();
            let first = log.lines().find(|line| !line.trim().is_empty()).unwrap_or("no message");
            Error::new(kind, what).with_source(format!("NVRTC: {first}"))
        }
        CompileError::CreationError(code)
        | CompileError::GetLogError(code)
        | CompileError::GetPtxError(code)
        | CompileError::DestroyError(code) => {
            Error::new(ErrorKind::Unsupported, what).with_source(format!("NVRTC: {code}"))
        }
    }
}

/// Returns whether NVRTC is installed. A positive answer is cached, because the library stays
/// loaded.
fn is_present() -> bool {
    static PRESENT: AtomicBool = AtomicBool::new(false);
    // SAFETY: loading runs the library's constructors. It is NVIDIA's library, found by the
    // system's loader.
    PRESENT.load(Ordering::Relaxed)
        || unsafe { sys::is_culib_present() } && {
            PRESENT.store(true, Ordering::Relaxed);
            true
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_grid_has_one_block_per_256_elements_up_to_1024() {
        let blocks = |length| linear(length).grid_dim.0;
        assert_eq!([1, 256, 257, 262_144, u64::MAX].map(blocks), [1, 1, 2, 1024, 1024]);
    }

    #[test]
    fn kernel_source_matches_launch_sizes() {
        assert!(SOURCE.contains(&format!("#define TILE {TILE}\n")));
        assert!(SOURCE.contains(&format!("#define THREADS {THREADS}\n")));
    }

    #[test]
    fn kernels_compile_for_each_architecture_or_nvrtc_is_missing() {
        for (major, minor) in [(5, 2), (7, 0), (8, 0), (9, 0)] {
            match ptx(major, minor) {
                Ok(ptx) => {
                    let text = ptx.to_src();
                    assert!(text.contains(&format!(".target sm_{major}{minor}")), "{text}");
                    for name in ["matmul", "add", "sum"] {
                        assert!(text.contains(&format!(".entry {name}(")), "{name}");
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), MachineFault::NoLibrary.into(), "{error:?}");
                    assert!(!is_present());
                }
            }
        }
    }

    #[test]
    fn unknown_architecture_reports_nvrtc_error() {
        let error = ptx(1, 0).unwrap_err();
        if is_present() {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let text = error.fault().text;
            assert!(text.starts_with("compile the kernels for compute capability 1.0"), "{text}");
            assert!(text.contains("NVRTC: "), "{text}");
        }
    }
}
