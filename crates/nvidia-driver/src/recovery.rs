//! The numbers and names of the actions by which the driver asks for a device to be recovered.

use gpu_core::RecoveryAction;

/// The number of each action (`nvmlDeviceGpuRecoveryAction_t`).
const NUMBERED: [(u32, RecoveryAction); 6] = [
    (0, RecoveryAction::None),
    (1, RecoveryAction::Reset),
    (2, RecoveryAction::Reboot),
    (3, RecoveryAction::DrainPeers),
    (4, RecoveryAction::DrainAndReset),
    (5, RecoveryAction::RecoverImex),
];

/// Names apart from [`RecoveryAction::name`]: of some versions of nvidia-smi, and of the driver in
/// the kernel log.
const ALSO: [(RecoveryAction, &str); 7] = [
    (RecoveryAction::Reset, "GPU Reset"),
    (RecoveryAction::Reset, "GPU Reset Required"),
    (RecoveryAction::Reset, "PF FLR"),
    (RecoveryAction::Reboot, "Node Reboot"),
    (RecoveryAction::Reboot, "Node Reboot Required"),
    (RecoveryAction::Reboot, "OS Reboot"),
    (RecoveryAction::RecoverImex, "IMEX Domain Recovery"),
];

/// Returns the action with this number.
pub fn recovery_action(number: u32) -> RecoveryAction {
    let known = NUMBERED.iter().find(|(known, _)| *known == number);
    known.map_or(RecoveryAction::Other, |(_, action)| *action)
}

/// Returns the number of an action; the highest one for another action.
pub fn recovery_number(action: RecoveryAction) -> u32 {
    let known = NUMBERED.iter().find(|(_, known)| *known == action);
    known.map_or(u32::MAX, |(number, _)| *number)
}

/// Returns the action that nvidia-smi prints as this name, in either case; `None` if the name is
/// unknown here.
pub fn recovery_action_named(name: &str) -> Option<RecoveryAction> {
    let known = NUMBERED.iter().map(|(_, action)| (*action, action.name()));
    let mut known = known.chain(ALSO);
    known.find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(action, _)| action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_one_number_and_several_names() {
        for (number, action) in NUMBERED {
            assert_eq!((recovery_action(number), recovery_number(action)), (action, number));
            let name = action.name().to_uppercase();
            assert_eq!(recovery_action_named(&name), Some(action), "{name}");
        }
        assert_eq!(recovery_action_named("pf flr"), Some(RecoveryAction::Reset));
        assert_eq!(recovery_action_named("Bus Reset"), None);
        assert_eq!(recovery_action(6), RecoveryAction::Other);
        assert_eq!(recovery_number(RecoveryAction::Other), u32::MAX);
    }
}
