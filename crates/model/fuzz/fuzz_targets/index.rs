#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpu_model_fuzz::index(bytes));
