#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpu_text_fuzz::of_kind(bytes, gpu_text::Kind::Other));
