//! The errors of devices that drivers log, as their vendors explain them.

use std::borrow::Cow;
use std::fmt;

/// The code of an error: the list in which a vendor names it, and its number there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DriverErrorCode {
    /// The list, in lower case: `xid`, or `ring-timeout` for an error without a number. Serialised
    /// as `kind`.
    #[cfg_attr(feature = "serde", serde(rename = "kind"))]
    pub list: Cow<'static, str>,
    /// The number. Serialised as `xid`, after the first list.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "xid", default, skip_serializing_if = "Option::is_none")
    )]
    pub number: Option<u32>,
}

impl DriverErrorCode {
    /// The maximum length of the name of a code that no driver knows, in characters: records may
    /// contain any.
    pub const MAX_NAME: usize = 40;

    /// Returns the number in this list; `None` for a code of another list.
    pub fn number_in(&self, list: &str) -> Option<u32> {
        self.number.filter(|_| self.list == list)
    }
}

impl fmt::Display for DriverErrorCode {
    /// Writes `xid-79`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.list)?;
        self.number.map_or(Ok(()), |number| write!(f, "-{number}"))
    }
}

/// An error, as its vendor explains it ([`KernelDriver::explain`](crate::KernelDriver::explain)).
///
/// The default is that of an error without an explanation. Callers show it as it is: newer drivers
/// have newer errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The code. Messages of different forms may be about one error.
    pub code: DriverErrorCode,
    /// The code in the vendor's spelling: `Xid 79`.
    pub name: String,
    /// What happened, as a sentence fragment.
    pub text: Cow<'static, str>,
    /// The part that fails.
    pub class: FaultClass,
    /// Whether the device can be used in spite of it.
    pub severity: Severity,
    /// The first remedy. If the error returns, the next one is support in most cases.
    pub remedy: Remedy,
    /// How it relates to other errors.
    pub relation: Relation,
    /// The error that the message names as its cause.
    pub cause: Option<Box<DriverError>>,
}

impl DriverError {
    /// The text of an error without an explanation.
    pub const UNKNOWN: &str = "unknown to this version";
}

impl Default for DriverError {
    fn default() -> Self {
        DriverError {
            code: DriverErrorCode::default(),
            name: String::new(),
            text: Self::UNKNOWN.into(),
            class: FaultClass::Hardware,
            severity: Severity::Unstated,
            remedy: Remedy::None,
            relation: Relation::Cause,
            cause: None,
        }
    }
}

/// The class of an error: the part that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultClass {
    /// In most cases, the program of the process that the message names. Its owner can fix it, and
    /// the device works unless programs of several users fail there.
    Program,
    /// Memory of the device.
    Memory,
    /// A link of the device: to other devices, to the CPU, or PCI Express.
    Link,
    /// The device has left the bus. If it answers now, it is back.
    Lost,
    /// The device or its firmware no longer answers, or never did. Calls of the driver about it may
    /// hang.
    Unresponsive,
    /// Another part of the device, its firmware or the driver; also an unknown part.
    Hardware,
    /// A switch between devices, at the address of the message.
    Switch,
    /// No part: the message is a notice.
    Notice,
}

/// Whether a device can be used in spite of an error: the statement of the driver, or of the
/// vendor's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Neither says so.
    Unstated,
    /// It can.
    NotFatal,
    /// It can, and only the programs that met the error are affected. This also holds for an error
    /// of the device that is [`FatalUnlessContained`](Severity::FatalUnlessContained).
    Contained,
    /// No, unless another message says [`Contained`](Severity::Contained).
    FatalUnlessContained,
    /// No, until the remedy.
    Fatal,
}

/// A remedy, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Remedy {
    /// None is necessary, or the vendor names none.
    None,
    /// Restart the program that failed.
    RestartProgram,
    /// Reset the device, after all its holders have released it.
    Reset,
    /// Reboot the machine.
    Reboot,
    /// Have the hardware or its installation examined.
    Support,
}

/// How an error relates to others of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Relation {
    /// It may cause others, and follows from none unless its message names one.
    Cause,
    /// It may cause others, and may follow from an earlier one of the same device or process.
    CauseOrEffect,
    /// It is the clean-up after another error of the same device or process, which may be logged
    /// shortly after it, or after the end of a program. It causes none.
    Cleanup,
    /// It may follow from an earlier error of any device. It causes none.
    EffectOfAny,
    /// It neither causes others nor follows from them.
    Alone,
    /// As [`Alone`](Relation::Alone), and it is the current request of the driver: a later one
    /// replaces it.
    Request,
    /// The message is a further line about the error with this code, or about the error of the
    /// device before it, and is not counted.
    Detail,
}
