//! The messages of PyTorch.

use super::*;

#[test]
fn full_pytorch_2_message_is_parsed() {
    let event = one(TORCH_2);
    assert_eq!((event.framework, event.wording), (Framework::PyTorch, Some(Wording::Torch22)));
    assert_eq!((event.backend.as_deref(), event.gpu), (Some("cuda"), Some(2)));
    assert_eq!(text(&event.tried), "3.25 GiB");
    assert_eq!((text(&event.total), text(&event.free)), ("40.00 GiB", "1.50 GiB"));
    assert_eq!(text(&event.this_process), "26.00 GiB");
    assert_eq!((text(&event.allocated), text(&event.private_pools)), ("24.00 GiB", "1.25 GiB"));
    assert_eq!(text(&event.reserved_unallocated), "1.50 GiB");
    let processes: Vec<_> = event.processes.iter().map(|(p, f)| (*p, f.text.as_str())).collect();
    assert_eq!(processes, [(4711, "12.00 GiB"), (4712, "500.00 MiB")]);
    assert_eq!(count(&event.tried), Some(3_489_660_928));
}

#[test]
fn newest_pytorch_variable_is_recognised() {
    let newest = one(&TORCH_2.replace("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"));
    assert_eq!(newest.wording, Some(Wording::Torch29));
}

#[test]
fn older_pytorch_messages_are_parsed() {
    let cached =
        one("RuntimeError: CUDA out of memory. Tried to allocate 20.50 MiB (GPU 1; 11.00 GiB \
        total capacity; 9.75 GiB already allocated; 10.25 MiB free; 512.00 KiB cached)");
    assert_eq!((cached.wording, cached.gpu), (Some(Wording::Torch13), Some(1)));
    assert_eq!((text(&cached.cached), text(&cached.allocated)), ("512.00 KiB", "9.75 GiB"));
    assert_eq!((text(&cached.total), text(&cached.free)), ("11.00 GiB", "10.25 MiB"));
    let reserved = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; \
        6.00 GiB already allocated; 1.00 GiB free; 6.50 GiB reserved in total by PyTorch)";
    assert_eq!(one(reserved).wording, Some(Wording::Torch14));
    assert_eq!(text(&one(reserved).reserved_total), "6.50 GiB");
    let hinted = format!(
        "{reserved} If reserved memory is >> allocated memory try setting max_split_size_mb"
    );
    assert_eq!(one(&hinted).wording, Some(Wording::Torch110));
    let misspelt = "HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacty of 64.00 \
        GiB of which 1.00 GiB is free.";
    assert_eq!(
        (one(misspelt).wording, one(misspelt).backend.as_deref()),
        (Some(Wording::Torch21), Some("hip"))
    );
    assert_eq!(text(&one(misspelt).total), "64.00 GiB");
}

#[test]
fn process_limit_is_parsed() {
    let old = one(
        "CUDA out of memory. Tried to allocate 5.50 GiB (GPU 0; 11.00 GiB total capacity; 0 \
        bytes already allocated; 10.75 GiB free; 5.50 GiB allowed; 0 bytes reserved in total by PyTorch)",
    );
    assert_eq!((text(&old.limit), text(&old.allocated)), ("5.50 GiB", "0 bytes"));
    let new = one(
        "CUDA out of memory. Tried to allocate 90.00 MiB. GPU 0 has a total capacity of 8.00 \
        GiB of which 4.00 GiB is free. This process has 3.50 GiB memory in use. 3.00 GiB allowed; Of \
        the allocated memory 2.75 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but \
        unallocated.",
    );
    assert_eq!((text(&new.limit), text(&new.this_process)), ("3.00 GiB", "3.50 GiB"));
}

#[test]
fn pytorch_cuda_malloc_async_message_is_parsed() {
    let message = "torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of \
        memory)\nCurrently allocated     : 5.25 GiB\nRequested               : 12.50 MiB\nDevice \
        limit            : 12.00 GiB\nFree (according to CUDA): 0 bytes\nPyTorch limit (set by \
        user-supplied memory fraction)\n                        : 17179869184.00 GiB";
    for log in [message.to_owned(), message.replace('\n', " "), message.replace('\n', "\\n")] {
        let event = one(&log);
        assert_eq!((event.framework, event.gpu), (Framework::PyTorch, Some(1)), "{log}");
        assert_eq!((text(&event.tried), text(&event.total)), ("12.50 MiB", "12.00 GiB"));
        assert_eq!((text(&event.allocated), text(&event.free)), ("5.25 GiB", "0 bytes"));
        assert_eq!(event.limit, None);
    }
    let limited = message.replace("17179869184.00 GiB", "6.00 GiB");
    assert_eq!(text(&one(&limited).limit), "6.00 GiB");
    let brief =
        "torch.OutOfMemoryError: Allocation on device \nGot an OOM, unloading all loaded models.";
    assert_eq!((one(brief).framework, one(brief).tried), (Framework::PyTorch, None));
    assert_eq!(one("torch.OutOfMemoryError: Allocation on device").framework, Framework::PyTorch);
    assert_eq!(all(&format!("{message}\n{brief}")).len(), 1);
    assert_eq!(all("Allocation on device 3 went well"), []);
}

#[test]
fn other_pytorch_backends_are_parsed() {
    let xpu = one(
        "XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 15.00 \
        GiB. Of the allocated memory 8.00 GiB is allocated by PyTorch, and 1.00 MiB is reserved by \
        PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.",
    );
    assert_eq!((xpu.backend.as_deref(), text(&xpu.total)), (Some("xpu"), "15.00 GiB"));
    assert_eq!((xpu.cached, xpu.free), (None, None));
    let npu =
        one("RuntimeError: NPU out of memory. Tried to allocate 8.00 GiB (NPU 3; 60.00 GiB total \
        capacity; 50.00 GiB already allocated; 50.00 GiB current active; 2.00 GiB free; 54.00 GiB \
        reserved in total by PyTorch)");
    assert_eq!((npu.backend.as_deref(), npu.gpu), (Some("npu"), Some(3)));
    let metal = one("RuntimeError: MPS backend out of memory (MPS allocated: 9.50 GiB, other \
        allocations: 16.25 GiB, max allowed: 27.00 GiB). Tried to allocate 1.50 GiB on private pool. \
        Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may \
        cause system failure).");
    assert_eq!(metal.backend.as_deref(), Some("mps"));
    assert_eq!((text(&metal.allocated), text(&metal.other)), ("9.50 GiB", "16.25 GiB"));
    assert_eq!((text(&metal.limit), text(&metal.tried)), ("27.00 GiB", "1.50 GiB"));
    let host = one(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't \
        allocate memory: you tried to allocate 4000000000 bytes. Error code 12",
    );
    assert_eq!((host.backend.as_deref(), count(&host.tried)), (Some("cpu"), Some(4_000_000_000)));
    let absurd = one("RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.");
    assert_eq!((text(&absurd.tried), count(&absurd.tried)), ("more than 1EB", Some(1 << 60)));
}

#[test]
fn absurd_figures_are_kept_as_printed() {
    let event =
        one("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of \
        24.00 GiB of which 7.00 GiB is free. Process 9132 has 17179869184.00 GiB memory in use. \
        Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use.");
    assert_eq!(
        (text(&event.this_process), count(&event.this_process)),
        ("17179869184.00 GiB", None)
    );
    assert_eq!(event.processes[0].1.text, "17179869184.00 GiB");
}

#[test]
fn first_figure_before_or_after_each_phrase_counts() {
    let event =
        one("CUDA out of memory. Tried to allocate 1.00 GiB. GPU 3; 1.00 GiB total capacity; \
        CPU 4; Process 5 has 2.00 GiB memory free. Process 6 has 3.00 GiB memory in use. \
        none is free; 4.00 GiB is free");
    assert_eq!(
        (event.gpu, text(&event.total), text(&event.free)),
        (Some(3), "1.00 GiB", "4.00 GiB")
    );
    let processes: Vec<u32> = event.processes.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(processes, [6]);
}

#[test]
fn backend_is_short_name_or_comes_from_variable() {
    for (before, after, backend) in [
        ("CUDA out of memory.", "", Some("cuda")),
        ("MPS backend out of memory", "", Some("mps")),
        ("A out of memory.", "", None),
        ("ACCELERAT out of memory.", "", None),
        ("ACCELERA out of memory.", "", Some("accelera")),
        ("Cuda out of memory.", "", None),
        ("", "PYTORCH_HIP_ALLOC_CONF", Some("hip")),
        ("", "PYTORCH_CUDA_ALLOC_CONF", Some("cuda")),
    ] {
        let event = one(&format!("{before} Tried to allocate 1.00 GiB. {after}"));
        assert_eq!(event.backend.as_deref(), backend, "{before} {after}");
    }
}

#[test]
fn brief_driver_pool_message_joins_recent_full_one() {
    let complete = "OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of \
        memory)\nRequested : 12.50 MiB\n";
    let brief = "\ntorch.OutOfMemoryError: Allocation on device \n";
    let apart = |lines: usize| all(&format!("{complete}{}{brief}", "x\n".repeat(lines))).len();
    assert_eq!((apart(97), apart(98)), (1, 2));
    assert_eq!(all(&format!("{TORCH_2}{brief}")).len(), 2, "of another allocator");
}
