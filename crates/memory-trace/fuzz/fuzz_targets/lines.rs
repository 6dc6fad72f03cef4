#![no_main]

const HEADS: [&str; 2] =
    ["{\"schema\":1,\"kind\":\"memory-trace\"}\n", "Thread,Time,Action,Pointer,Size,Stream\n"];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for head in HEADS {
        gpu_memory_trace_fuzz::read(&[head.as_bytes(), bytes].concat());
    }
});
