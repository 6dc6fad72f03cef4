#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpu_graph_fuzz::of_form(bytes, gpu_graph::read::Form::Onnx));
