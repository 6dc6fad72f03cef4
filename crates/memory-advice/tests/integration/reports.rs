//! Messages of public reports, if a collection of them is available: the cause and the advice.

use gpu_memory_advice::explain::{Cause, Diagnosis, explain};
use gpu_memory_advice::text::shown;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A text of the collection, identified by the end of its directory name, with the causes of its
/// messages and text that the answer must contain.
const REPORTS: &[(&str, &str, &[Cause], &[&str])] = &[
    ("vllm-kv-needed", "in.log", &[Cause::Limit], &["--max-model-len 34736"]),
    ("vllm-kv-needed", "in2.log", &[Cause::Limit], &["--max-model-len 99712"]),
    ("llama-retry-pp", "in.log", &[Cause::NoFailure], &[]),
    ("llama-rocm-moe", "in.log", &[Cause::NotTold], &["-ub lower", "Not an NVIDIA"]),
    ("vllm-startup-ray", "in.log", &[Cause::Unnamed], &["--gpu-memory-utilization 0.88"]),
    ("torch-oom-22g", "in.log", &[Cause::TooBig], &["720 MiB"]),
    ("vllm-maxseq-old", "in.log", &[Cause::Limit], &["--max-model-len 7344"]),
    ("jax-bufferassign", "in.log", &[Cause::TooBig], &["14.44 GiB"]),
    (
        "jax-not-failure-then-failure",
        "in.log",
        &[Cause::NoFailure, Cause::NoFailure, Cause::NotTold],
        &[],
    ),
    ("jax-failed-request", "in.log", &[Cause::NotTold], &[]),
    ("jax-1tib", "in.log", &[Cause::LargerThanDevice], &["23.8 GiB"]),
    ("jax-old-wrapped", "in.log", &[Cause::NotTold], &[]),
    ("torch-acceleratorerror", "in.log", &[Cause::NotTold], &[]),
    ("sglang-notenough", "in.log", &[Cause::Limit], &["--mem-fraction-static", "2.19 GiB"]),
    ("sglang-kv-prefix", "in.log", &[Cause::Full], &["--mem-fraction-static"]),
    ("vllm-capture-oom", "in.log", &[Cause::NotTold], &["--enforce-eager"]),
    ("torch-private-pools", "in.log", &[Cause::Full], &["--max-num-seqs", "--enforce-eager"]),
    ("hami-oom", "in.log", &[Cause::Limit], &["2.93 GiB"]),
    ("hami-oom", "in2.log", &[Cause::NotTold], &["HAMi"]),
    ("hami-oom", "in3.log", &[Cause::Limit], &["7.81 GiB"]),
    ("hami-oom", "in4.log", &[Cause::ImpossibleFigure], &["below zero"]),
    ("trtllm-executor", "in.log", &[Cause::TooBig], &["108.86 GiB", "free_gpu_memory_fraction"]),
    ("comfy-mallocasync", "in.log", &[Cause::TooBig], &[]),
    ("comfy-mallocasync", "in2.log", &[Cause::NotTold], &[]),
    ("vllm-nocacheblocks", "in.log", &[Cause::Limit], &["--gpu-memory-utilization"]),
    ("trtllm-other-tenant", "in.log", &[Cause::Full], &["is this process"]),
    ("slurm-host-oom", "in.log", &[Cause::HostMemory], &["--mem", "191"]),
    ("slurm-host-oom", "in2.log", &[Cause::HostMemory], &["--mem"]),
    ("tgi-warmup", "in.log", &[Cause::TooBig], &["--max-batch-prefill-tokens 2048"]),
    ("ollama-runner-oom", "in.log", &[Cause::NotTold, Cause::TakenBefore], &["gpuws doctor"]),
    ("ollama-runner-oom", "in2.log", &[Cause::TakenBefore], &["gpuws doctor"]),
    ("xgboost-9793", "in.log", &[Cause::NotTold], &["12.09 MiB"]),
    ("pinned-host-not-failure", "in.log", &[Cause::NoFailure], &["pinned"]),
    ("taggui-free-enough", "in.log", &[Cause::FreeEnough], &[]),
    ("vulkan-limit", "in.log", &[Cause::BufferLimit], &["-ub"]),
    ("lmdeploy", "in.log", &[Cause::NotTold], &["--cache-max-entry-count"]),
    ("ascend-el0004", "in.log", &[Cause::NotTold], &["Not an NVIDIA"]),
    ("deepspeed-quoted", "in.log", &[Cause::Fragmented], &[]),
    ("wrapped-quoted-mail", "in.log", &[Cause::NotTold], &["Not an NVIDIA"]),
    ("vllm-1m-old", "in.log", &[Cause::Limit], &["--max-model-len"]),
    ("llama-free-line", "in.log", &[Cause::TooBig], &["-ngl 51", "3.78 GiB"]),
    ("vllm-profiling-assert", "in.log", &[Cause::Disturbed], &["90.17 GiB", "gpuws run"]),
    ("vllm-wakeup", "in.log", &[Cause::Unnamed], &["gpuws doctor"]),
    ("sglang-unbalanced", "in.log", &[Cause::Unnamed], &["12.4 GiB", "gpuws doctor"]),
    ("triton-fallback", "in.log", &[Cause::NoFailure], &[]),
    ("trt-requested", "in.log", &[Cause::NotTold], &["8 GiB"]),
    ("trt-requested", "in2.log", &[Cause::NotTold], &["free_gpu_memory_fraction"]),
    ("wmlce-inactive", "in.log", &[Cause::FreeEnough], &[]),
];

#[test]
fn public_reports_are_explained() {
    // Bypasses the test harness, which hides the output of passing tests.
    let mut stderr = std::io::stderr();
    let Some(dir) = std::env::var_os("GPUWS_BUGS") else {
        writeln!(stderr, "skipped: GPUWS_BUGS names no collection of public reports").unwrap();
        return;
    };
    let mut wrong = Vec::new();
    for (name, file, causes, words) in REPORTS {
        let path = directory(Path::new(&dir), name).join(file);
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let report = gpu_text::oom::read(&text);
        let all: Vec<Diagnosis> =
            report.events.iter().map(|event| explain(&shown(event), None)).collect();
        let found: Vec<Cause> = all.iter().map(|diagnosis| diagnosis.cause).collect();
        let output = all.iter().map(output).collect::<String>();
        let missing = words.iter().filter(|word| !output.contains(**word)).collect::<Vec<_>>();
        if found != *causes || !missing.is_empty() {
            wrong.push(format!("{name}/{file}: {found:?}, without {missing:?}\n{output}"));
        }
    }
    writeln!(stderr, "{} of {} reports explained", REPORTS.len() - wrong.len(), REPORTS.len())
        .unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the directory named with a number, a hyphen and this name.
fn directory(dir: &Path, name: &str) -> PathBuf {
    let entries = std::fs::read_dir(dir).expect("the collection is a directory").flatten();
    let is_it = |path: &PathBuf| {
        let own = path.file_name().and_then(|own| own.to_str()).unwrap_or_default();
        own.split_once('-').is_some_and(|(_, rest)| rest == name)
    };
    entries.map(|entry| entry.path()).find(is_it).unwrap_or_else(|| panic!("no report {name}"))
}

fn output(diagnosis: &Diagnosis) -> String {
    let mut output = vec![diagnosis.verdict.clone()];
    output.extend(diagnosis.reasons.iter().cloned());
    for remedy in &diagnosis.remedies {
        output.push(format!("{} {}", remedy.set.as_deref().unwrap_or_default(), remedy.why));
    }
    output.join("\n") + "\n"
}
