#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpu_allocator_policy_fuzz::read(bytes));
