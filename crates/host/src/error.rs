//! Errors of live runs, each with a remedy.

use std::fs;
use std::io;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use skyhop_engine::EngineError;
use skyhop_kernel::KernelError;
use skyhop_model::cc_label;
use skyhop_record::FileError;
use thiserror::Error;

/// Error of a live run; each message is one line that ends with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum HostError {
    /// The system forbids the creation of namespaces.
    #[error("this system does not let skyhop create its namespaces: {restriction}; {remedy}")]
    NamespacesForbidden {
        /// Setting or policy that forbids it.
        restriction: String,
        /// Action that the user can take.
        remedy: String,
    },
    /// No type of device is available to connect the kernel and the link.
    #[error("{problem}; {remedy}")]
    DeviceUnavailable {
        /// Reason why no device is available.
        problem: String,
        /// Action that the user can take.
        remedy: String,
    },
    /// The kernel has no congestion control of this name.
    #[error(
        "this kernel does not offer the congestion control \"{name}\"; it offers {available}; \
         choose one of these, or have root load the module of another"
    )]
    UnknownCongestionControl {
        /// Name of the requested congestion control.
        name: String,
        /// Available congestion controls, separated by commas.
        available: String,
    },
    /// A congestion control of skyhop or of the user cannot be loaded into this kernel.
    #[error("the congestion control \"{name}\" cannot be used here: {reason}")]
    CongestionControl {
        /// Name of the requested congestion control.
        name: String,
        /// Reason, with the remedy.
        reason: String,
        /// Whether the user's input is wrong, as opposed to the system.
        is_input: bool,
    },
    /// A command cannot be started.
    #[error("cannot start \"{command}\": {reason}; check its name and your PATH")]
    ProgramNotFound {
        /// Command line as the user gave it.
        command: String,
        /// Error message of the system.
        reason: String,
    },
    /// The server ended before the client was started.
    #[error(
        "the server command \"{command}\" ended at once with status {status}; try it by itself"
    )]
    ServerEnded {
        /// Command line as the user gave it.
        command: String,
        /// Exit status of the server.
        status: i32,
    },
    /// A link cannot be built.
    #[error("the {direction} link cannot be built: {reason}")]
    Link {
        /// Direction of the link: "forward" or "back".
        direction: String,
        /// Error message of the link.
        reason: String,
    },
    /// The experiment uses a feature that the engine does not support.
    #[error("{0}")]
    Unsupported(String),
    /// A system call failed unexpectedly.
    #[error("{action}: {reason}")]
    System {
        /// Attempted action, as "cannot …".
        action: String,
        /// Error message of the system.
        reason: String,
    },
    /// The engine's process died.
    #[error(
        "the live engine died ({how}); the kernel has removed its namespaces, and its measurements are lost"
    )]
    EngineDied {
        /// Signal or exit status of the process.
        how: String,
    },
}

impl HostError {
    /// Error about a congestion control of a scenario or a card that cannot be loaded into the kernel.
    pub fn of_congestion_control(cc: &str, error: &KernelError) -> Self {
        Self::CongestionControl {
            name: cc_label(cc).to_owned(),
            reason: error.to_string(),
            is_input: error.is_input(),
        }
    }

    /// Whether the user's input is wrong, as opposed to the system.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::UnknownCongestionControl { .. }
                | Self::ProgramNotFound { .. }
                | Self::Link { .. }
                | Self::Unsupported(_)
                | Self::CongestionControl { is_input: true, .. }
        )
    }
}

/// Extension trait that adds the attempted action to an error.
pub trait Context<T> {
    /// Convert the error to a [`HostError::System`] with this action.
    fn context(self, action: &str) -> Result<T, HostError>;
}

macro_rules! with_context {
    ($($error:ty),*) => {$(
        impl<T> Context<T> for Result<T, $error> {
            fn context(self, action: &str) -> Result<T, HostError> {
                self.map_err(|error| system(action, &error.to_string()))
            }
        }
    )*};
}
with_context!(io::Error, KernelError, FileError, HostError);

impl From<HostError> for EngineError {
    fn from(error: HostError) -> Self {
        let is_input = error.is_input();
        Self::Failed { reason: Box::new(error), is_input }
    }
}

impl<T> Context<T> for Result<T, &str> {
    fn context(self, action: &str) -> Result<T, HostError> {
        self.map_err(|reason| system(action, reason))
    }
}

impl<T> Context<T> for Result<T, Errno> {
    fn context(self, action: &str) -> Result<T, HostError> {
        self.map_err(|error| system(action, error.desc()))
    }
}

fn system(action: &str, reason: &str) -> HostError {
    HostError::System { action: action.to_owned(), reason: reason.to_owned() }
}

/// Error about a namespace whose creation failed with `errno`: finds the setting that forbids it.
pub fn namespaces_forbidden(errno: Errno) -> HostError {
    let (restriction, remedy) =
        restriction(errno, |file| fs::read_to_string(file).ok().map(|text| text.trim().to_owned()));
    HostError::NamespacesForbidden { restriction, remedy }
}

const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
const CLONE: &str = "/proc/sys/kernel/unprivileged_userns_clone";
const LIMITS: [&str; 4] = [
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/user/max_pid_namespaces",
    "/proc/sys/user/max_mnt_namespaces",
    "/proc/sys/user/max_net_namespaces",
];

fn restriction(errno: Errno, read: impl Fn(&str) -> Option<String>) -> (String, String) {
    if let Some(file) = LIMITS.iter().find(|file| read(file).as_deref() == Some("0")) {
        let name = sysctl_name(file);
        return (
            format!("{file} is 0"),
            format!("run as root: sysctl -w {name}=10000, or run skyhop as root"),
        );
    }
    if read(CLONE).as_deref() == Some("0") {
        let remedy =
            "run as root: sysctl -w kernel.unprivileged_userns_clone=1, or run skyhop as root";
        return (format!("{CLONE} is 0"), remedy.to_owned());
    }
    if read(APPARMOR).as_deref() == Some("1") {
        let remedy = "run as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give \
                       skyhop's Python an AppArmor profile with `userns,`, or run skyhop as root";
        return (format!("AppArmor restricts them ({APPARMOR} is 1)"), remedy.to_owned());
    }
    let remedy = "run skyhop as root, or in a container that grants CAP_SYS_ADMIN and CAP_NET_ADMIN \
                   and allows unshare";
    (format!("the kernel returned \"{}\"", errno.desc()), remedy.to_owned())
}

fn sysctl_name(file: &str) -> String {
    file.trim_start_matches("/proc/sys/").replace('/', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &'static str, value: &'static str) -> (String, String) {
        restriction(Errno::EPERM, move |asked| (asked == file).then(|| value.to_owned()))
    }

    #[test]
    fn each_restriction_is_named_with_its_remedy() {
        let (restriction, remedy) = found(APPARMOR, "1");
        assert!(restriction.contains("AppArmor"), "{restriction}");
        assert!(remedy.contains("kernel.apparmor_restrict_unprivileged_userns=0"), "{remedy}");
        let (restriction, remedy) = found(CLONE, "0");
        assert!(restriction.contains("unprivileged_userns_clone is 0"), "{restriction}");
        assert!(remedy.contains("kernel.unprivileged_userns_clone=1"), "{remedy}");
        let (restriction, remedy) = found(LIMITS[0], "0");
        assert!(restriction.contains("max_user_namespaces is 0"), "{restriction}");
        assert!(remedy.contains("user.max_user_namespaces=10000"), "{remedy}");
    }

    #[test]
    fn without_a_known_restriction_the_kernels_word_is_passed_on() {
        let (restriction, remedy) = found(APPARMOR, "0");
        assert!(restriction.contains("Operation not permitted"), "{restriction}");
        assert!(remedy.contains("as root"), "{remedy}");
    }
}
