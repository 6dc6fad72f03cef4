//! Hostile files: each is rejected, or read in time and memory bounded by its size.

use crate::trace::pickler::{Py, dict, pickle};
use crate::trace::real;
use gpu_memory_trace::trace::{Limits, Location, Problem, Recording, TraceError};

fn refused(bytes: &[u8]) -> TraceError {
    Recording::read(bytes).expect_err("it is refused")
}

/// Returns the offset, the opcode and the name of the code that a file requires.
fn code(bytes: &[u8]) -> (u64, &'static str, String) {
    let error = refused(bytes);
    assert!(error.remedy().contains("do not unpickle this file with Python"));
    match (error.location(), error.problem()) {
        (Location::Byte(at), Problem::Code { opcode, wanted }) => (*at, opcode, wanted.clone()),
        _ => panic!("not refused as code: {error}"),
    }
}

/// A pickle of protocol 4 whose value is the result of `program` on the stack.
fn program(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0x80, 4];
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.push(b'.');
    bytes
}

/// A dictionary key that no version has, so that the value below it is ignored.
const KEY: &[u8] = b"}\x8c\x08segments]s\x8c\x05other";

#[test]
fn pickled_code_is_rejected_by_name_and_never_run() {
    let marker = std::env::temp_dir().join(format!("gpuws-pickle-{}", std::process::id()));
    let command = format!("touch {}", marker.display());
    let system = format!("cos\nsystem\n(S'{command}'\ntR.");
    assert_eq!(code(system.as_bytes()), (0, "GLOBAL", "os.system".to_owned()));
    let inst = format!("(S'{command}'\nios\nsystem\n.");
    assert_eq!(code(inst.as_bytes()).1, "INST");
    assert_eq!(code(inst.as_bytes()).2, "os.system");
    let stacked = program(&[b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R"]);
    assert_eq!(code(&stacked), (14, "STACK_GLOBAL", "os.system".to_owned()));
    for (bytes, name) in [
        (&b"]]R."[..], "REDUCE"),
        (b"]]b.", "BUILD"),
        (b"]]\x81.", "NEWOBJ"),
        (b"]]}\x92.", "NEWOBJ_EX"),
        (b"(]o.", "OBJ"),
        (b"Pmodel\n.", "PERSID"),
        (b"]Q.", "BINPERSID"),
        (b"\x82\x01.", "EXT1"),
        (b"\x83\x01\x00.", "EXT2"),
        (b"\x84\x01\x00\x00\x00.", "EXT4"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"]\x98.", "READONLY_BUFFER"),
        (b"\x93.", "STACK_GLOBAL"),
    ] {
        assert_eq!(code(bytes).1, name);
    }
    assert!(!marker.exists(), "the command was run");
    let shown = refused(b"c\x1b[2Jos\nsystem\xff\n.").to_string();
    assert!(shown.contains("GLOBAL imports '\\u{1b}[2Jos.system\u{fffd}'"), "{shown}");
    let long = [&b"c"[..], &[b'x'; 10_000], b"\nsystem\n."].concat();
    assert!(refused(&long).to_string().len() < 300);
}

#[test]
fn deep_nesting_does_not_use_stack() {
    let depth = 200_000;
    // Nested lists, under an ignored key and in place of the segments.
    let nested = [vec![b']'; depth], vec![b'a'; depth - 1]].concat();
    assert!(Recording::read(&program(&[KEY, &nested, b"s"])).unwrap().devices.is_empty());
    let message = refused(&program(&[&nested])).to_string();
    assert!(message.contains("segments[0]: a list instead of a dictionary"), "{message}");
    // Nested tuples, unclosed marks, nested dictionaries.
    let tuples = [&b")"[..], &vec![0x85; depth]].concat();
    assert!(refused(&program(&[&tuples])).to_string().contains("a list instead of a dictionary"));
    assert!(refused(&vec![b'('; depth]).to_string().contains("there is no STOP"));
    let dicts = [b"}N".repeat(depth), b"}".to_vec(), vec![b's'; depth]].concat();
    assert!(refused(&program(&[&dicts])).to_string().contains("no 'segments'"));
}

/// Lists with ten references each to the previous list, `levels` deep: 10^levels items when expanded.
fn laughs(levels: usize) -> Vec<u8> {
    let mut bytes = b"]\x94".to_vec();
    for level in 0..levels as u8 {
        bytes.extend(b"](");
        (0..10).for_each(|_| bytes.extend([b'h', level]));
        bytes.extend(b"e\x94");
    }
    bytes
}

#[test]
fn billion_laughs_is_never_expanded() {
    let bomb = laughs(100);
    assert!(refused(&program(&[&bomb])).to_string().contains("leaves unused values"));
    let below = [KEY, b"(", &bomb, b"ls"].concat();
    assert!(Recording::read(&program(&[&below])).unwrap().devices.is_empty());
}

/// A snapshot of `outer` references to one entry that has `inner` references to another.
fn referred(outer: usize, inner: usize, open: &[u8], close: &[u8], leaf: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, 4];
    bytes.extend([leaf, b"\x940"].concat());
    bytes.extend([open, b"]("].concat());
    (0..inner).for_each(|_| bytes.extend(b"h\x00"));
    bytes.extend([b"e", close, b"\x940](" as &[u8]].concat());
    (0..outer).for_each(|_| bytes.extend(b"h\x01"));
    bytes.push(b'e');
    bytes
}

#[test]
fn shared_entries_are_bounded() {
    // 10^10 events or blocks in a file of 400 kB. The test counts references instead of time.
    let event =
        &pickle(&dict([("action", "alloc".into()), ("addr", 0.into()), ("size", 8.into())]), 1);
    let event = event.strip_suffix(b".").unwrap();
    let traces = referred(100_000, 100_000, b"", b"", event);
    let traces = [&traces[..], b"\x940}\x8c\x0ddevice_tracesh\x02s."];
    let error = refused(&traces.concat());
    let Problem::TooMuch { limit, .. } = error.problem() else { panic!("{error}") };
    assert!(*limit < 1_000_000, "{error}");
    assert!(error.to_string().contains("it refers to the same ones repeatedly"));

    let block = pickle(&dict([("size", 1.into()), ("state", "inactive".into())]), 1);
    let block = block.strip_suffix(b".").unwrap();
    let open =
        b"}\x8c\x07address\x8a\x06\0\0\0\0\0\x7fs\x8c\ntotal_sizeJ\xa0\x86\x01\0s\x8c\x06blocks";
    let segments = [&referred(100_000, 100_000, open, b"s", block)[..], b"."].concat();
    let error = refused(&segments);
    assert!(
        matches!(error.problem(), Problem::TooMuch { limit, .. } if *limit < 1_000_000),
        "{error}"
    );

    // One event with 10^5 unknown keys, referenced 10^5 times.
    let mut wide = event.to_vec();
    (0..100_000).for_each(|_| wide.extend(b"NNs"));
    let mut bytes = [&[0x80, 4][..], &wide, b"\x940}\x8c\x0ddevice_traces]](" as &[u8]].concat();
    (0..100_000).for_each(|_| bytes.extend(b"h\x00"));
    bytes.extend(b"eas.");
    assert!(matches!(refused(&bytes).problem(), Problem::TooMuch { .. }));
}

/// Lines and strings of 512 KiB: the plain, quoted and escaped forms of protocol 0, and the form of
/// all others.
fn long_texts() -> [Vec<u8>; 4] {
    const LONG: usize = 1 << 19;
    let text = vec![b't'; LONG];
    [
        [&b"V"[..], &text, b"\n"].concat(),
        [&b"S'"[..], &text, b"'\n"].concat(),
        [&b"V"[..], &b"\\u0074".repeat(LONG / 6), b"\n"].concat(),
        [&b"X"[..], &(LONG as u32).to_le_bytes(), &text].concat(),
    ]
}

/// Two bytes refer to a string of 512 KiB, and the file does this a hundred thousand times. Reading
/// the string for each reference would take 50 GB and never end within a test run.
#[test]
fn long_shared_string_is_read_once() {
    let times = |pair: &[u8]| pair.repeat(15_000);
    for text in long_texts() {
        let bytes = program(&[
            // The referenced values: the string as 0, and names of a frame as 1 to 3.
            &text,
            b"\x940\x8c\x04name\x940\x8c\x08filename\x940\x8c\x04line\x940",
            // Keys of the snapshot, of an event and of a frame; the values of a frame.
            b"}(",
            &times(b"h\0N"),
            b"\x8c\x0ddevice_traces](](}(",
            &times(b"h\0N"),
            b"\x8c\x06action\x8c\x05alloc\x8c\x04addrK\0\x8c\x04sizeK\x08\x8c\x06frames](}(",
            &times(b"h\0N"),
            &times(b"h\x01h\0"),
            &times(b"h\x02h\0"),
            &times(b"h\x03h\0"),
            b"ueu",
            // A span whose stage is the string.
            b"}(\x8c\x06action\x8c\x0cuser_defined\x8c\x06frames](}(h\x01h\0",
            &times(b"h\x02h\0"),
            b"ueueeu",
        ]);
        let recording = Recording::read(&bytes).unwrap();
        let [device] = &recording.devices[..] else { panic!("one device") };
        assert_eq!((device.events.len(), device.annotations.len()), (1, 0));
        let mut frames = recording.stacks.frames(device.event_stacks[0].unwrap());
        let frame = frames.next().unwrap();
        assert!(frame.function.len() > 80_000 && frame.function == frame.file);
        assert_eq!(frame.line, 0);
    }
}

#[test]
fn rejects_and_truncates_long_string_as_name_or_number() {
    for text in long_texts() {
        for (key, expected) in [
            (&b"\x8c\x06action"[..], "device_traces[0][0]: the action 'tttt"),
            (b"\x8c\x04size", "device_traces[0][0]: 'size' is 'tttt"),
        ] {
            let head: &[u8] = b"}\x8c\x0ddevice_traces]](}(\x8c\x04addrK\0";
            let error = refused(&program(&[head, key, &text, b"ueas"])).to_string();
            assert!(error.contains(expected) && error.len() < 300, "{error}");
        }
        // A setting with a hundred thousand pairs, and as many settings.
        let pairs = b"h\0h\0".repeat(100_000);
        let head = [&text, &b"\x940}(\x8c\x08segments]\x8c\x12allocator_settings}("[..]].concat();
        let recording = Recording::read(&program(&[&head, b"\x8c\x01w}(", &pairs, b"uuu"]));
        assert!(recording.unwrap().settings.is_empty());
        let error = refused(&program(&[&head, &pairs, b"uu"]));
        assert_eq!(error.problem(), &Problem::TooMuch { what: "settings", limit: 256 });
    }
}

#[test]
fn overlong_number_is_rejected_at_its_position() {
    for (opcode, name) in [(b'I', "INT"), (b'L', "LONG"), (b'F', "FLOAT")] {
        let number = |digits: usize| [&[opcode][..], &vec![b'0'; digits], b"\n"].concat();
        // The size of an event, repeated a hundred thousand times.
        let many = b"h\x01h\0".repeat(100_000);
        let head = b"\x940\x8c\x04size\x940}\x8c\x0ddevice_traces]](}(";
        let file = |digits| program(&[&number(digits), head, &many, b"\x8c\x06actionNueas"]);
        let error = refused(&file(1 << 19));
        assert_eq!(error.location(), &Location::Byte(2), "{error}");
        let expected = format!("{name} is a number on a line of 524288 bytes; no number needs");
        assert!(error.to_string().contains(&expected), "{error}");
        // A string of the maximum length is read each time.
        let message = refused(&file(64)).to_string();
        let wanted = if opcode == b'F' { "'size' is 0.0" } else { "the action None is unknown" };
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn fully_escaped_key_is_recognised() {
    let name = |name: &str| {
        let escaped: String = name.chars().map(|c| format!("\\U{:08x}", u32::from(c))).collect();
        format!("V{escaped}\n").into_bytes()
    };
    let span = [name("name"), name("span"), name("stage"), name("START")].concat();
    let key = name("external_annotations");
    let bytes = program(&[b"}(", &name("segments"), b"](", b"e", &key, b"](}(", &span, b"ueu"]);
    assert_eq!(&*Recording::read(&bytes).unwrap().devices[0].annotations[0].name, "span");
}

#[test]
fn settings_sharing_long_string_are_bounded() {
    // 10^5 settings of 4 kB each, and a setting with 10^5 pairs of them.
    let text = [&b"}X\0\x10\0\0"[..], &[b'v'; 4096], b"\x940\x8c\x08segments]s"].concat();
    let mut many = [&text[..], b"\x8c\x12allocator_settings}("].concat();
    (0..100_000_u32).for_each(|key| many.extend([&b"J"[..], &key.to_le_bytes(), b"h\0"].concat()));
    let error = refused(&program(&[&many, b"us"]));
    assert_eq!(error.problem(), &Problem::TooMuch { what: "settings", limit: 256 });
    let mut wide = [&text[..], b"\x8c\x12allocator_settings}\x8c\x01w}("].concat();
    (0..100_000).for_each(|_| wide.extend(b"h\0h\0"));
    let recording = Recording::read(&program(&[&wide, b"uss"])).unwrap();
    assert!(recording.settings.is_empty(), "settings that are too long are skipped");
}

#[test]
fn frames_share_long_strings_in_memory() {
    // 10^4 different frames with a name of 10^6 characters: 10 GB when copied.
    let mut bytes = vec![0x80, 4, b'X'];
    bytes.extend(1_000_000_u32.to_le_bytes());
    bytes.extend(vec![b'n'; 1_000_000]);
    bytes.extend(b"\x940}\x8c\x0ddevice_traces]](}(\x8c\x06actionX\x05\0\0\0alloc");
    bytes.extend(b"\x8c\x04addrK\0\x8c\x04sizeK\x08\x8c\x06frames](");
    for line in 0..10_000_u16 {
        bytes.extend(b"}(\x8c\x04nameh\0\x8c\x08filenameh\0\x8c\x04lineM");
        bytes.extend(line.to_le_bytes());
        bytes.push(b'u');
    }
    bytes.extend(b"eueas.");
    let recording = Recording::read(&bytes).unwrap();
    let stack = recording.devices[0].event_stacks[0].unwrap();
    let mut frames = recording.stacks.frames(stack);
    let first = frames.next().unwrap().clone();
    assert_eq!(frames.len(), 9_999);
    assert!(frames.all(|frame| std::sync::Arc::ptr_eq(&frame.function, &first.file)));
}

#[test]
fn self_referential_values_are_harmless() {
    assert!(refused(&program(&[b"]\x94h\x00a"])).to_string().contains("segments[0]: a list"));
    assert!(Recording::read(&program(&[KEY, b"]\x94h\x00as"])).is_ok());
    // A snapshot that is its own trace, and a block that is its own segment.
    let message = refused(&program(&[b"}\x94\x8c\x0ddevice_traces](h\x00es"])).to_string();
    assert!(message.contains("device_traces[0]: a dictionary instead of a list"), "{message}");
    let segment: &[u8] =
        b"](}\x94(\x8c\x07addressK\x01\x8c\x0atotal_sizeK\x01\x8c\x06blocks](h\x00eue";
    let message = refused(&program(&[segment])).to_string();
    assert!(message.contains("segments[0]['blocks'][0]: 'size' is missing"), "{message}");
    let message = refused(&program(&[b"}\x94(h\x00h\x00u"])).to_string();
    assert!(message.contains("no 'segments'"), "{message}");
}

#[test]
fn out_of_range_numbers_are_rejected() {
    let with_size = |number: &[u8]| {
        let head: &[u8] = b"}\x8c\x0ddevice_traces]](}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\0";
        refused(&program(&[head, b"\x8c\x04size", number, b"ueas"])).to_string()
    };
    let message = with_size(b"\x8a\x09\0\0\0\0\0\0\0\x80\0");
    assert!(
        message.contains("'size' is 9223372036854775808, not a nonnegative number"),
        "{message}"
    );
    let message = with_size(b"\x8a\x08\0\0\0\0\0\0\0\x80");
    assert!(message.contains("'size' is -9223372036854775808"), "{message}");
    let message = with_size(b"\x8a\x09\0\0\0\0\0\0\0\0\x01");
    assert!(message.contains("LONG1 is a number of 9 bytes"), "{message}");
    let message = with_size(b"L99999999999999999999L\n");
    assert!(message.contains("LONG has the argument '99999999999999999999L'"), "{message}");
    let message = with_size(b"G\x7f\xf0\0\0\0\0\0\0");
    assert!(message.contains("'size' is inf"), "{message}");
}

#[test]
fn lengths_beyond_file_are_rejected_before_allocating() {
    for (bytes, expected) in [
        (&b"\x8b\x00\x00\x00\x80."[..], "LONG4 has the length -2147483648"),
        (b"\x8b\xff\xff\xff\x7f.", "LONG4 needs 2147483647 bytes, but only 1 are left"),
        (b"X\xff\xff\xff\xffab.", "BINUNICODE needs 4294967295 bytes, but only 3 are left"),
        (b"T\xff\xff\xff\xffab.", "BINSTRING has the length -1"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "BINUNICODE8 needs 18446744073709551615 bytes"),
        (b"\x8d\0\0\0\0\0\0\0\x40.", "BINUNICODE8 needs 4611686018427387904 bytes"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "BINBYTES8 needs"),
        (b"\x96\xff\xff\xff\xff\xff\xff\xff\xff.", "BYTEARRAY8 needs"),
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff.", "FRAME needs"),
        (b"]r\xff\xff\xff\xff.", "LONG_BINPUT has the index 4294967295"),
        (b"]p99999999999\n.", "PUT has the index 99999999999"),
        (b"p-1\n.", "PUT has the argument '-1'"),
    ] {
        let error = refused(bytes).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn misplaced_opcodes_are_rejected_at_their_position() {
    for (bytes, expected) in [
        (&b"\x80\x04."[..], "at byte 2: STOP needs a value"),
        (b"]].", "at byte 2: STOP leaves unused values"),
        (b"(].", "STOP"),
        (b"].]", "STOP is followed by 1 bytes"),
        (b"a.", "APPEND needs a value"),
        (b"]NNNa.", "APPEND needs a list to extend"),
        (b"NNa.", "APPEND needs a list"),
        (b"](Na.", "APPEND needs a list"),
        (b"e.", "APPENDS needs a MARK, but there is none"),
        (b"(e.", "APPENDS needs a list"),
        (b"](((e.", "APPENDS needs a list"),
        (b"}(Nu.", "SETITEMS has a key without a value"),
        (b"(Nd.", "DICT has a key without a value"),
        (b"](NNu.", "SETITEMS needs a dictionary"),
        (b"}NNNs.", "SETITEM needs a dictionary"),
        (b"N(N\x86.", "TUPLE2 needs more than 1 values"),
        (b"h\x00.", "BINGET refers to memo entry 0, which does not exist"),
        (b"]r\x03\x00\x00\x00.", "LONG_BINPUT has the index 3"),
        (b"\x94.", "MEMOIZE needs a value"),
        (b"0.", "POP needs a value"),
        (b"1.", "POP_MARK needs a MARK, but there is none"),
        (b"2.", "DUP needs a value"),
        (b"\x80\x06.", "PROTO 6 is newer than 5"),
        (b"]\xff.", "at byte 1: unknown opcode 0xff"),
        (b"F1.5.0\n.", "FLOAT has the argument '1.5.0'"),
        (b"Sabc\n.", "STRING has the argument 'abc'"),
        (b"V\\u12\n.", "UNICODE has the argument"),
    ] {
        let error = refused(bytes).to_string();
        assert!(error.contains(expected), "{}: {error}", bytes.escape_ascii());
    }
}

#[test]
fn limits_are_enforced() {
    let list = pickle(&Py::List(vec![]), 4);
    let read = |bytes: &[u8], limits| Recording::read_within(bytes, limits);
    let limits = Limits { bytes: list.len() as u64 - 1, ..Limits::default() };
    let message = read(&list, limits).unwrap_err().to_string();
    assert!(message.contains(&format!("more than {} bytes", limits.bytes)), "{message}");
    let limits = Limits { memory: Some(0), ..Limits::default() };
    let error = read(&list, limits).unwrap_err();
    let what = "EMPTY_LIST".to_owned();
    assert_eq!(
        (error.location(), error.problem()),
        (&Location::Byte(2), &Problem::Memory { what, limit: 0 })
    );
    assert!(error.remedy().contains("--read-limit"));
}

/// Files in which each byte expands as much as possible. A file that would take many times its size
/// is rejected at the opcode or entry that exceeds the limit; others are read.
#[test]
fn memory_is_bounded_by_file_size() {
    const SIZE: usize = 1 << 18;
    let repeated = |part: &[u8]| part.repeat(SIZE / part.len());
    let list = |items: &[u8]| program(&[KEY, b"(", items, b"ls"]);
    let scalars = list(&repeated(b"K\x01"));
    let lists = list(&repeated(b"]"));
    let tuples = program(&[KEY, b")", &vec![0x85; SIZE], b"s"]);
    let memo = program(&[KEY, b"N", &vec![0x94; SIZE], b"s"]);
    let marks = program(&[KEY, &vec![b'('; SIZE], &vec![b'l'; SIZE], b"s"]);
    let dicts = list(&repeated(b"}NNs"));
    let again = list(&repeated(b"]\x94h\0"));
    let text = list(&[&b"X\0\0\x04\0"[..], &vec![b'x'; SIZE]].concat());
    let texts = {
        let mut texts = Vec::new();
        for number in 0..SIZE as u32 / 16 {
            let name = number.to_le_bytes();
            texts.extend([&b"}(X\x04\0\0\0"[..], b"nameX\x04\0\0\0", &name].concat());
            texts.extend([&b"X\x08\0\0\0filenameX\x04\0\0\0"[..], &name, b"u"].concat());
        }
        let event = b"}(X\x06\0\0\0actionX\x05\0\0\0allocX\x04\0\0\0addrK\0X\x04\0\0\0sizeK\x08";
        let event = [&event[..], b"X\x06\0\0\0frames(", &texts, b"lu"].concat();
        program(&[b"}X\x0d\0\0\0device_traces](](", &event, b"ees"])
    };
    let events = {
        let event =
            b"}(X\x06\0\0\0actionX\x04\0\0\0freeX\x04\0\0\0addrK\0X\x04\0\0\0sizeK\x08u\x94";
        // Unused items raise the bound of the walk.
        let idle = [b"X\x04\0\0\0idle(", &vec![b'N'; 2 * SIZE][..], b"l"].concat();
        let again = b"h\0".repeat(SIZE / 2);
        program(&[b"}(", &idle, b"X\x0d\0\0\0device_traces](](", event, &again, b"eeu"])
    };
    for (name, file, takes) in [
        ("scalars", &scalars, 7),
        ("lists", &lists, 61),
        ("tuples", &tuples, 85),
        ("memo", &memo, 5),
        ("marks", &marks, 43),
        ("dicts", &dicts, 25),
        ("again", &again, 20),
        ("text", &text, 1),
        ("texts", &texts, 10),
        ("events", &events, 19),
    ] {
        let read = |memory: usize| {
            let limits = Limits { memory: Some(memory as u64), ..Limits::default() };
            Recording::read_within(file, limits)
        };
        assert!(read(takes * file.len()).is_ok(), "{name} takes {takes} times its size");
        if takes > 1 {
            let error = read(file.len() / 2).unwrap_err();
            assert!(matches!(error.problem(), Problem::Memory { .. }), "{name}: {error}");
        }
    }
}

#[test]
fn truncated_snapshot_is_rejected() {
    let Some(dir) = real::dir() else { return };
    let whole = std::fs::read(dir.join("torch-forward-ctx128.pickle")).unwrap();
    assert!(Recording::read(&whole).is_ok());
    let near = (0..2_000).chain(whole.len() - 40..whole.len());
    let lengths = near.chain((0..whole.len()).step_by(49_999));
    for length in lengths {
        let error = refused(&whole[..length]);
        let cut = matches!(error.problem(), Problem::Truncated { .. } | Problem::UnknownFormat);
        assert!(cut, "cut at {length}: {error}");
        assert!(
            matches!(error.location(), Location::Byte(at) if *at <= length as u64) || length < 2,
            "{error}"
        );
    }
}

#[test]
fn corrupted_snapshot_is_read_or_rejected() {
    let Some(dir) = real::dir() else { return };
    let whole = std::fs::read(dir.join("torch-forward-ctx128.pickle")).unwrap();
    let (mut read, mut refused) = (0, 0);
    for at in (0..whole.len()).step_by(79_999) {
        for byte in [0x00, 0xff, b'.', b'c', whole[at] ^ 0x01] {
            let mut changed = whole.clone();
            changed[at] = byte;
            match Recording::read(&changed) {
                Ok(_) => read += 1,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 0 && refused > read, "{read} read, {refused} refused");
}
