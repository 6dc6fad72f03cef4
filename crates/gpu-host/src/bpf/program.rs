//! The program that the kernel runs for each open file or mapping: it writes the PID of each process
//! whose file is one of the devices.
//!
//! Register and instruction names follow the kernel's `Documentation/bpf/standardization`.

use super::Offsets;
use crate::syscall::Instruction;
use std::ops::RangeInclusive;

/// Helper functions (`enum bpf_func_id` of linux/bpf.h).
const PROBE_READ_KERNEL: i32 = 113;
const SEQ_WRITE: i32 = 127;
const GET_CURRENT_TASK_BTF: i32 = 158;

/// A mask for levels; the highest is `MAX_PID_NS_LEVEL` (32) of linux/pid_namespace.h.
const LEVELS: i32 = 63;

/// Offsets in the context of both iterators: `meta`, `task`, and then the visited object.
const TASK: i16 = 8;

/// The location of the file in an iterator's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// `struct bpf_iter__task_file`: a descriptor's file, after the number of the descriptor.
    Descriptor,
    /// `struct bpf_iter__task_vma`: a mapping, whose file is a field.
    Mapping,
}

/// Returns the program for one iterator. It writes four bytes for each file whose device number
/// (`major << 20 | minor`) is in one of `ranges`: the process's PID in the reader's namespace, in
/// the byte order of the machine, or 0 if it cannot be read.
///
/// `None` if an offset does not fit into an instruction.
pub(super) fn program(
    object: Object,
    ranges: &[RangeInclusive<u32>],
    offsets: &Offsets,
) -> Option<Vec<Instruction>> {
    let mut code = Code::default();
    code.copy(6, 1);
    code.load(Size::Double, 7, 6, TASK);
    code.exit_if_null(7);
    match object {
        Object::Descriptor => code.load(Size::Double, 1, 6, 24),
        Object::Mapping => {
            code.load(Size::Double, 1, 6, 16);
            code.exit_if_null(1);
            code.load(Size::Double, 1, 1, offsets.file_of_mapping);
        }
    }
    code.exit_if_null(1);
    code.load(Size::Double, 1, 1, offsets.inode_of_file);
    code.exit_if_null(1);
    code.load(Size::Word, 2, 1, offsets.device_of_inode);
    let before_exit = i16::try_from(ranges.len().checked_mul(2)?).ok()?;
    for (at, range) in (0..).zip(ranges) {
        // Two instructions for each range, and then the exit: past it is a hit.
        code.skip_if(Compare::Less, 2, *range.start(), 1);
        code.skip_if(Compare::LessOrEqual, 2, *range.end(), before_exit - 2 * at - 2 + 1);
    }
    code.exit();

    // The level of the reader's PID namespace: the index of its numbers in `struct pid`.
    code.call(GET_CURRENT_TASK_BTF);
    code.load(Size::Double, 1, 0, offsets.pid_of_task);
    code.exit_if_null(1);
    code.load(Size::Word, 8, 1, offsets.level_of_pid);
    code.and(8, LEVELS);
    code.multiply(8, offsets.number_size);
    code.load(Size::Double, 1, 7, offsets.leader_of_task);
    code.exit_if_null(1);
    code.load(Size::Double, 3, 1, offsets.pid_of_task);
    code.exit_if_null(3);
    code.add(3, offsets.first_number_of_pid);
    code.add_register(3, 8);
    // The verifier permits no load at a variable offset, but permits a checked read.
    code.copy(1, 10);
    code.add(1, -8);
    code.set(2, 4);
    code.call(PROBE_READ_KERNEL);
    code.load(Size::Double, 1, 6, 0);
    code.load(Size::Double, 1, 1, 0);
    code.copy(2, 10);
    code.add(2, -8);
    code.set(3, 4);
    code.call(SEQ_WRITE);
    code.finish()
}

enum Size {
    Word,
    Double,
}

enum Compare {
    Less,
    LessOrEqual,
}

/// Instructions under construction.
#[derive(Default)]
struct Code {
    instructions: Vec<Instruction>,
    /// Jumps to the end of the program, to be completed.
    exits: Vec<usize>,
}

impl Code {
    fn push(&mut self, code: u8, (to, from): (u8, u8), offset: i16, immediate: i32) {
        let registers = to | from << 4;
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.push(0xbf, (to, from), 0, 0);
    }

    fn set(&mut self, to: u8, value: i32) {
        self.push(0xb7, (to, 0), 0, value);
    }

    fn add(&mut self, to: u8, value: i32) {
        self.push(0x07, (to, 0), 0, value);
    }

    fn add_register(&mut self, to: u8, from: u8) {
        self.push(0x0f, (to, from), 0, 0);
    }

    fn and(&mut self, to: u8, mask: i32) {
        self.push(0x57, (to, 0), 0, mask);
    }

    fn multiply(&mut self, to: u8, factor: i32) {
        self.push(0x27, (to, 0), 0, factor);
    }

    fn load(&mut self, size: Size, to: u8, base: u8, offset: i16) {
        let code = match size {
            Size::Word => 0x61,
            Size::Double => 0x79,
        };
        self.push(code, (to, base), offset, 0);
    }

    fn call(&mut self, helper: i32) {
        self.push(0x85, (0, 0), 0, helper);
    }

    /// Skips `count` instructions if the lower 32 bits of a register compare so as unsigned
    /// numbers.
    fn skip_if(&mut self, compare: Compare, register: u8, value: u32, count: i16) {
        let code = match compare {
            Compare::Less => 0xa6,
            Compare::LessOrEqual => 0xb6,
        };
        self.push(code, (register, 0), count, value.cast_signed());
    }

    fn exit_if_null(&mut self, register: u8) {
        self.exits.push(self.instructions.len());
        self.push(0x15, (register, 0), 0, 0);
    }

    fn exit(&mut self) {
        self.exits.push(self.instructions.len());
        self.push(0x05, (0, 0), 0, 0);
    }

    /// Appends `return 0` and completes the jumps to it.
    fn finish(mut self) -> Option<Vec<Instruction>> {
        let end = self.instructions.len();
        for at in self.exits {
            self.instructions[at].offset = i16::try_from(end - at - 1).ok()?;
        }
        let (zero, exit) = (0xb7, 0x95);
        for code in [zero, exit] {
            let last = Instruction { code, registers: 0, offset: 0, immediate: 0 };
            self.instructions.push(last);
        }
        Some(self.instructions)
    }
}
