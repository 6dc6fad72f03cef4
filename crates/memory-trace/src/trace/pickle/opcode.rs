//! The names of opcodes.

pub(super) fn name(opcode: u8) -> &'static str {
    match opcode {
        b'(' => "MARK",
        b'.' => "STOP",
        b'0' => "POP",
        b'1' => "POP_MARK",
        b'2' => "DUP",
        b'F' => "FLOAT",
        b'I' => "INT",
        b'J' => "BININT",
        b'K' => "BININT1",
        b'L' => "LONG",
        b'M' => "BININT2",
        b'N' => "NONE",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        b'R' => "REDUCE",
        b'S' => "STRING",
        b'T' => "BINSTRING",
        b'U' => "SHORT_BINSTRING",
        b'V' => "UNICODE",
        b'X' => "BINUNICODE",
        b'a' => "APPEND",
        b'b' => "BUILD",
        b'c' => "GLOBAL",
        b'd' => "DICT",
        b'}' => "EMPTY_DICT",
        b'e' => "APPENDS",
        b'g' => "GET",
        b'h' => "BINGET",
        b'i' => "INST",
        b'j' => "LONG_BINGET",
        b'l' => "LIST",
        b']' => "EMPTY_LIST",
        b'o' => "OBJ",
        b'p' => "PUT",
        b'q' => "BINPUT",
        b'r' => "LONG_BINPUT",
        b's' => "SETITEM",
        b't' => "TUPLE",
        b')' => "EMPTY_TUPLE",
        b'u' => "SETITEMS",
        b'G' => "BINFLOAT",
        0x80 => "PROTO",
        0x81 => "NEWOBJ",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x85 => "TUPLE1",
        0x86 => "TUPLE2",
        0x87 => "TUPLE3",
        0x88 => "NEWTRUE",
        0x89 => "NEWFALSE",
        0x8a => "LONG1",
        0x8b => "LONG4",
        b'B' => "BINBYTES",
        b'C' => "SHORT_BINBYTES",
        0x8c => "SHORT_BINUNICODE",
        0x8d => "BINUNICODE8",
        0x8e => "BINBYTES8",
        0x8f => "EMPTY_SET",
        0x90 => "ADDITEMS",
        0x91 => "FROZENSET",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        0x94 => "MEMOIZE",
        0x95 => "FRAME",
        0x96 => "BYTEARRAY8",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => "an unknown opcode",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Python's names, in byte order.
    #[test]
    fn every_opcode_has_its_name() {
        let names: Vec<_> =
            (0..=u8::MAX).filter(|opcode| name(*opcode) != name(0)).map(name).collect();
        let expected = "MARK EMPTY_TUPLE STOP POP POP_MARK DUP BINBYTES SHORT_BINBYTES FLOAT BINFLOAT INT BININT BININT1 \
            LONG BININT2 NONE PERSID BINPERSID REDUCE STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE EMPTY_LIST \
            APPEND BUILD GLOBAL DICT APPENDS GET BINGET INST LONG_BINGET LIST OBJ PUT BINPUT LONG_BINPUT \
            SETITEM TUPLE SETITEMS EMPTY_DICT PROTO NEWOBJ EXT1 EXT2 EXT4 TUPLE1 TUPLE2 TUPLE3 NEWTRUE NEWFALSE LONG1 \
            LONG4 SHORT_BINUNICODE BINUNICODE8 BINBYTES8 EMPTY_SET ADDITEMS FROZENSET NEWOBJ_EX STACK_GLOBAL MEMOIZE \
            FRAME BYTEARRAY8 NEXT_BUFFER READONLY_BUFFER";
        assert_eq!(names.join(" "), expected);
        assert_eq!([b'.', b'N', 0x80].map(name), ["STOP", "NONE", "PROTO"]);
    }
}
