//! Runs hostile texts of growing length through every parser: the work must grow linearly.

use crate::of_kind::of_kind;
use crate::text::{Text, clean};
use crate::{Hint, Kind, oom, parse, sections, snapshot};
use gpu_core::Timestamp;

/// The two lengths of each text. Comparing the work at both reveals growth with the square of the
/// number of lines.
const LENGTHS: [usize; 2] = [1 << 8, 9 << 9];

/// The maximum work per byte for any text; the worst is a row of one character compared with each
/// of 256 devices.
const PER_BYTE: u64 = 400;

/// A text of `length` bytes that starts with `head` and repeats `unit`.
fn filled(head: &str, unit: &str, length: usize) -> Vec<u8> {
    head.bytes().chain(unit.bytes().cycle()).take(length.max(head.len())).collect()
}

/// A text of `length` bytes that starts with `head` and continues with different lines.
fn numbered(head: &str, line: impl Fn(usize) -> String, length: usize) -> Vec<u8> {
    let mut text = head.as_bytes().to_vec();
    for number in 0.. {
        if text.len() >= length {
            break;
        }
        text.extend_from_slice(line(number).as_bytes());
    }
    text
}

/// The repeated unit of a text with one kind of line or with one giant line.
const UNITS: &[&str] = &[
    "\n",
    " ",
    " \n",
    "|",
    "|\n",
    "+---+",
    "+---+\n",
    "+----------+\n",
    "a",
    "a\n",
    "\t",
    "\u{1f600}",
    "é\n",
    "-\n",
    "======",
    "```\n",
    "{\n",
    "*",
    "\\",
    "\\\n",
    "\"",
    ",",
    "a, ",
    ":",
    "a: b\n",
    " : ",
    "(",
    "  #",
    "a  #b\n",
    "1",
    "1 ",
    "1.1",
    "0 1 2 3\n",
    "$ \n",
    "$ nvidia-smi\n",
    "ERR! |",
    "| ERR! |\n",
    "<",
    "<\"",
    "<a>",
    "<a></a>",
    "</a>",
    "<!--",
    "<![CDATA[",
    "<?",
    "<gpu id=\"0\">",
    "GPU0\t",
    "GPU0\n",
    "GPU0\tGPU1\n\n",
    "GPU 0000:00:00.0\n",
    "1 F...m a\n",
    "1m ",
    "/dev/nvidia0: 1m\n",
    "GPU 0: a (UUID: GPU-b)\n",
    "index, name\n",
    "No devices were found\n",
    "nvidia error ",
    "nvidia error\n",
    "NVIDIA-SMI 1",
    "| NVIDIA-SMI 1  Driver Version: 1.1 |\n",
    "DMA: 0 1\n0: Y N\n",
    "NVRM: ",
    "NVRM: \n",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=a, b\n",
    "NVRM: Xid (PCI:0000:3b:00): 79, ",
    "NVRM: The NVIDIA GPU 0000:3b:00.0\n",
    "NVRM: The NVIDIA GPU ",
    "nvidia-nvswitch",
    "nvidia-nvswitch1: SXid (PCI:0000:3b:00.0): 1, Fatal\n",
    "Mon Mar  3 10:00:00 2025\n",
    "Mar  3 10:00:00 NVRM: Xid (PCI:0000:3b:00): 79\n",
    "[0] A | 5 % | 1 / 2 MB | a(1M)\n",
    "[0] A | 5 % | 1 / 2 MB | ",
    "a(1M) ",
    "| GPU instances: |\n",
    "| a                    b\n",
    "| a                    b\nc\n",
    "GPU  POWER\n",
    "GPU  POWER  ",
    "PID  VRAM_MEM\n",
    "GPU: 0\n",
    "GPU: 0\n    ",
    "GPU[0]: GPU use (%): 1\n",
    "0.1: gpu 1%, vram 1% 1mb\n",
    "| AMD-SMI \n",
    "| Device ID | 0 |\n",
    "+\n",
    "[\n",
    "{\"gpu\": 0}\n",
    "{\"gpu\": ",
    "[{\"gpu\": 0},",
    "{\"pid\": 1, \"gpus\": [{\"gpu_index\": 0}]}",
];

/// Units that cleaning changes before a parser reads them.
const CLEANED: &[&str] = &[
    "\r",
    "\0",
    "\u{2028}",
    "# \n",
    ">",
    "> \n",
    "\x1b[C",
    "\x1b[1G",
    "a\x1b[1G",
    "\x1b[1;1H",
    "\x1b]",
    "<br>",
    "&",
    "&nbsp;",
    "{\"log\":\"a\\n\"}\n",
    "{\"log\":\"",
    "{\"log\"",
    "\"\\n",
    "\\n",
    "\\u001b",
];

/// Units of out-of-memory messages, which are not a `Kind`.
const MESSAGES: &[&str] = &[
    "[rank0]:",
    "0: ",
    "Can-",
    "Can't ",
    "OOM ",
    "out of memory ",
    "out of memory\n",
    "CUDA error: out of memory ",
    "cudaErrorMemoryAllocation-",
    "cudaErrorMemoryAllocation\n",
    "Tried to allocate 1.00 GiB. ",
    "Allocation on device ",
    "Bin (",
    "Bin (1): Total Chunks: 1, Chunks in use: 1\n",
    "Next region of size 1\n",
    "InUse at 7f00 of size 256 next 1\n",
    "Limit: 1 InUse: 2 ",
    "ran out of memory trying to allocate 1GiB\n",
    "Dst tensor is not initialized\n",
    "failed to allocate 1.0G (1 bytes) from device: x\n",
    "failed to allocate 1",
    "OOM when allocating tensor with shape[1]\n",
    "Process 1 has 1 GiB memory in use. ",
    "PU ",
    "(a pid=7) ",
    "[2025-01-02 03:04:05 TP0] ",
    "vllm ",
    "vllm Tried to allocate 1.00 GiB. ",
    "gpu_memory_utilization=0.9 ",
    "No available memory for the cache blocks\n",
    "To serve at least one request with the model ",
    "Executor creation failed due to insufficient GPU memory ",
    "Memory cgroup out of memory: Killed process 7 (a) ",
    "using device CUDA0 - 7 MiB free\n",
    "allocating 7 MiB on device 0: cudaMalloc failed: out of memory\n",
    "failed to allocate CUDA0 buffer of size 7\n",
    "retrying with projector CPU offload\n",
    "unhandled cuda error ",
    "Process 1 has ",
];

/// Texts whose later lines all refer to the head.
const HEADED: &[(&str, &str)] = &[
    ("index, memory.used [MiB]\n", "0, 1 MiB\n"),
    ("pid, used_memory\n", "7, 1 MiB\n"),
    ("# gpu pid type sm fb command\n", "0 1 C 1 1 a\n"),
    ("\tGPU0\tGPU1\tCPU Affinity\n", "GPU0\tX\tNV1\t0\n"),
    ("\tGPU0\n", "GPU0 X\n"),
    ("<?xml version=\"1.0\"?><nvidia_smi_log>", "<a>"),
    ("<?xml version=\"1.0\"?><gpu ", "a=\"b\" "),
    ("<?xml version=\"1.0\"?><nvidia_smi_log><gpu>", "<mig_device></mig_device>"),
    ("<?xml version=\"1.0\"?><gpu><processes>", "<process_info><pid>1</pid></process_info>"),
    ("==NVSMI LOG==\nGPU 0000:01:00.0\n    Processes\n", "        Process ID : 1\n"),
    ("==NVSMI LOG==\n", "GPU 0000:01:00.0\n"),
    ("==NVSMI LOG==\n", "a\n"),
    ("/dev/nvidia0: ", "1m "),
    ("| GPU instances: |\n", "| 0 MIG a 1 2 |\n"),
    ("GPU  POWER\n", "0  1 W\n"),
    ("GPU  POWER  TEMP  VRAM_USED\n", "0 1 2 3\n"),
    ("PID  VRAM_MEM\n", "1  2 MB\n"),
    ("GPU  [Model : Revision]  GPU%\n", "a\n"),
    ("GPU: 0\n", "    A:\n"),
    ("GPU: 0\n    PROCESS_INFO:\n", "        PID: 1\n        NAME: a\n"),
    ("| BDF  GPU-Name |\n| GPU  GFX-Uti |\n+-+\n", "| 0:1:0.0  A |\n"),
    ("[", "{\"gpu\": 0, \"process_list\": [{\"process_info\": {\"pid\": 1}}]},"),
    ("{\"devices\": [{\"fdinfo\": {", "\"1\": {\"name\": \"a\"},"),
    ("{\"log\":\"", "a\\n"),
    ("BFCAllocator dump for GPU_0_bfc\n", "InUse at 7f00 of size 256 next 1\n"),
];

type Named = (String, Vec<u8>);

/// The texts that repeat these units, of `length` bytes.
fn repeated(units: &[&str], length: usize) -> Vec<Named> {
    units.iter().map(|unit| (format!("{unit:?}"), filled("", unit, length))).collect()
}

/// Texts that could be of each kind, of about `length` bytes.
fn texts(length: usize) -> Vec<Named> {
    let half = length / 2;
    let headed = HEADED
        .iter()
        .map(|(head, unit)| (format!("{head:?} and {unit:?}"), filled(head, unit, length)));
    let name = |name: &str, text: Vec<u8>| (name.to_owned(), text);
    let wide = format!("index{}\n", ", memory.used".repeat(length / 64));
    let columns = format!("# gpu{}\n", " pwr".repeat((length / 16).min(120)));
    let affinities = format!("\tGPU0{}\n", "\tCPU Affinity".repeat((length / 64).min(200)));
    let rule = format!("+{}\n--+\n", "-".repeat(half));
    let uuid = "a".repeat(half);
    let uuid = format!("==NVSMI LOG==\nGPU 0:1:0\n    GPU UUID : {uuid}\n    Processes\n");
    repeated(UNITS, length)
        .into_iter()
        .chain(headed)
        .chain([
            name("csv of many columns", filled(&wide, "0, 1\n", length)),
            name("dmon of many columns", filled(&columns, "0\n", length)),
            name("topo of many affinities", filled(&affinities, "GPU0\tX\n", length)),
            name("a rule as wide as half the text", filled(&rule, "|\nx\n", length)),
            name("a UUID of half the text", filled(&uuid, "        Process ID : 1\n", length)),
            name(
                "processes",
                numbered(
                    "pid, gpu_uuid, used_memory\n",
                    |n| format!("{n}, GPU-0, 1 MiB\n"),
                    length,
                ),
            ),
            name(
                "deeper and deeper sections",
                numbered("GPU: 0\n", |n| format!("{}A:\n", " ".repeat(n + 1)), length),
            ),
            name("files", numbered("", |n| format!("/dev/nvidia{n}: ann 7 F...m a\n"), length)),
            name(
                "sections",
                numbered("", |n| format!("$ nvidia-smi -L\nGPU {n}: a (UUID: GPU-{n})\n"), length),
            ),
            name(
                "deeper and deeper keys",
                numbered("==NVSMI LOG==\nGPU 0:1:0\n", |n| format!("{}a\n", " ".repeat(n)), length),
            ),
        ])
        .collect()
}

/// Texts that contain nothing for any parser, of about `length` bytes.
fn other_texts(length: usize) -> Vec<Named> {
    let gap = format!("cudaErrorMemoryAllocation {}", "1 ".repeat(length / 4));
    let message = |n| format!("Tried to allocate {}.00 MiB. \n", n % 990);
    let dump = |n| match n % 50 {
        0 => format!("BFCAllocator dump for a{}\n", n % 990),
        _ => "InUse at 7f00 of size 256 next 1\n".to_owned(),
    };
    let mut texts = repeated(CLEANED, length);
    texts.extend(repeated(MESSAGES, length));
    texts.extend(
        [
            ("words far behind an error", filled(&gap, "raise out of memory\n", length)),
            ("messages", numbered("", message, length)),
            ("dumps", numbered("", dump, length)),
        ]
        .map(|(name, text)| (name.to_owned(), text)),
    );
    texts
}

/// A parser of a text, as bytes and cleaned, with its name.
type Reader = (String, Box<dyn Fn(&[u8], &Text)>);

/// The parsers of a text of any kind.
fn readers_of_any_kind() -> Vec<Reader> {
    let reader = |name: &str, read: fn(&[u8])| -> Reader {
        (name.to_owned(), Box::new(move |text, _| read(text)))
    };
    vec![
        reader("parse", |text| drop(parse(text, &Hint::default()))),
        reader("doctor --paste", |text| drop(snapshot(&sections(text), Timestamp(1)))),
        reader("mem explain", |text| drop(oom::read(text))),
    ]
}

/// The parser of each kind.
fn readers_of_kinds() -> Vec<Reader> {
    let reader = |(name, kind): (&str, Kind)| -> Reader {
        (name.to_owned(), Box::new(move |_, text| drop(of_kind(text, kind, None))))
    };
    // pmon and dmon share a parser.
    Kind::NAMED.into_iter().filter(|(_, kind)| *kind != Kind::Dmon).map(reader).collect()
}

/// Asserts that the work of each parser grows linearly from the short to the long version of each
/// text.
fn assert_linear(readers: &[Reader], [short, long]: [Vec<Named>; 2]) {
    let mut broken = Vec::new();
    for ((name, short), (_, long)) in short.iter().zip(&long) {
        let cleaned = [short, long].map(|text| clean(text));
        let times = long.len() as f64 / short.len() as f64;
        for (reader, read) in readers {
            let first = super::of(|| read(short, &cleaned[0]));
            let last = super::of(|| read(long, &cleaned[1]));
            // Quadratic work would be eighteen times the linear work; the tolerance allows for one
            // more pass.
            let grows = last as f64 > 2.0 * times * first as f64 + 4096.0;
            if grows || last > PER_BYTE * long.len() as u64 {
                broken.push(format!("{reader}, {name}: {first}, then {last}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn text_of_any_kind_is_read_in_linear_time() {
    let all = |length| [texts(length), other_texts(length)].concat();
    assert_linear(&readers_of_any_kind(), LENGTHS.map(all));
}

#[test]
fn every_kind_is_parsed_in_linear_time() {
    assert_linear(&readers_of_kinds(), LENGTHS.map(texts));
}

#[test]
fn long_lists_of_devices_are_read_in_linear_time() {
    // Even the shorter lists exceed the number of devices that are compared with each other.
    let lists = |length| {
        let lists = [
            (
                "MIG devices",
                numbered(
                    "GPU 0: A100 (UUID: GPU-1)\n",
                    |n| format!("  MIG 1g.5gb Device {n}: (UUID: MIG-{n})\n"),
                    32 * length,
                ),
            ),
            (
                "devices of a monitor",
                numbered("GPU  XCP  POWER\n", |n| format!("{n}  0  1 W\n"), 16 * length),
            ),
            ("devices", numbered("index, uuid\n", |n| format!("{n}, GPU-{n}\n"), 16 * length)),
            (
                "devices by address",
                numbered("pci.bus_id\n", |n| format!("{n:X}:00:00.0\n"), 16 * length),
            ),
        ];
        lists.map(|(name, text)| (name.to_owned(), text)).to_vec()
    };
    assert_linear(&readers_of_any_kind(), LENGTHS.map(lists));
}
