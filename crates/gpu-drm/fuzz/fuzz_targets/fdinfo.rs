#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpu_drm_fuzz::fdinfo(bytes));
