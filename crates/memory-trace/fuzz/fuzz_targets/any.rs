#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpu_memory_trace_fuzz::read(bytes));
