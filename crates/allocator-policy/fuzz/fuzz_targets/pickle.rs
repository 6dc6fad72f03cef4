#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gpu_allocator_policy_fuzz::read(&[b"\x80\x04", bytes, b"."].concat());
});
