//! Why a live run could not be done.

use std::fs;
use std::io;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use skyhop_engine::EngineError;
use skyhop_kernel::KernelError;
use skyhop_model::cc_label;
use skyhop_record::FileError;
use thiserror::Error;

/// Why a live run could not be done; each message is one line that ends with the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum HostError {
    /// The system forbids the namespaces that a run needs.
    #[error("this system does not let skyhop create its namespaces: {restriction}; {way_out}")]
    NamespacesForbidden {
        /// What forbids it.
        restriction: String,
        /// What to do about it.
        way_out: String,
    },
    /// Nothing can carry packets between the kernel and the link.
    #[error("{problem}; {way_out}")]
    DeviceUnavailable {
        /// What is wrong.
        problem: String,
        /// What to do about it.
        way_out: String,
    },
    /// The kernel does not have a congestion control.
    #[error(
        "this kernel does not offer the congestion control \"{name}\"; it offers {available}; \
         choose one of these, or have root load the module of another"
    )]
    UnknownCongestionControl {
        /// The one asked for.
        name: String,
        /// What there is, separated by commas.
        available: String,
    },
    /// A congestion control of ours cannot be used in this kernel.
    #[error("the congestion control \"{name}\" cannot be used here: {reason}")]
    CongestionControl {
        /// The one asked for.
        name: String,
        /// Why, and the way out.
        reason: String,
        /// Whether what was asked for is wrong.
        is_input: bool,
    },
    /// A command cannot be started.
    #[error("cannot start \"{command}\": {reason}; check its name and your PATH")]
    ProgramNotFound {
        /// The command.
        command: String,
        /// What the system said.
        reason: String,
    },
    /// The server ended before the client was started.
    #[error(
        "the server command \"{command}\" ended at once with status {status}; try it by itself"
    )]
    ServerEnded {
        /// The command.
        command: String,
        /// Its exit status.
        status: i32,
    },
    /// A link cannot be built.
    #[error("the {direction} link cannot be built: {reason}")]
    Link {
        /// forward or back.
        direction: String,
        /// What the link said.
        reason: String,
    },
    /// The experiment asks for more than the engine can do.
    #[error("{0}")]
    Unsupported(String),
    /// A system call failed that normally does not.
    #[error("{action}: {reason}")]
    System {
        /// What was tried.
        action: String,
        /// What the system said.
        reason: String,
    },
    /// The engine's process died.
    #[error("the live engine died ({how}); nothing of it is left, and its measurements are lost")]
    EngineDied {
        /// By which signal or with which status.
        how: String,
    },
}

impl HostError {
    /// Why a scenario's congestion control, or a card's, is not in the kernel.
    pub fn of_congestion_control(cc: &str, error: &KernelError) -> Self {
        Self::CongestionControl {
            name: cc_label(cc).to_owned(),
            reason: error.to_string(),
            is_input: error.is_input(),
        }
    }

    /// Whether what was asked for was wrong, rather than the attempt to do it.
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

/// Names what was tried when a system call fails.
pub trait Context<T> {
    /// Turns the failure into a [`HostError::System`].
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

/// What in this system made the creation of a namespace fail with `errno`.
pub fn namespaces_forbidden(errno: Errno) -> HostError {
    let (restriction, way_out) =
        restriction(errno, |file| fs::read_to_string(file).ok().map(|text| text.trim().to_owned()));
    HostError::NamespacesForbidden { restriction, way_out }
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
        let way_out =
            "run as root: sysctl -w kernel.unprivileged_userns_clone=1, or run skyhop as root";
        return (format!("{CLONE} is 0"), way_out.to_owned());
    }
    if read(APPARMOR).as_deref() == Some("1") {
        let way_out = "run as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give \
                       skyhop's Python an AppArmor profile with `userns,`, or run skyhop as root";
        return (format!("AppArmor restricts them ({APPARMOR} is 1)"), way_out.to_owned());
    }
    let way_out = "run skyhop as root, or in a container that grants CAP_SYS_ADMIN and CAP_NET_ADMIN \
                   and allows unshare";
    (format!("the kernel said \"{}\"", errno.desc()), way_out.to_owned())
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
    fn each_restriction_is_named_with_its_way_out() {
        let (restriction, way_out) = found(APPARMOR, "1");
        assert!(restriction.contains("AppArmor"), "{restriction}");
        assert!(way_out.contains("kernel.apparmor_restrict_unprivileged_userns=0"), "{way_out}");
        let (restriction, way_out) = found(CLONE, "0");
        assert!(restriction.contains("unprivileged_userns_clone is 0"), "{restriction}");
        assert!(way_out.contains("kernel.unprivileged_userns_clone=1"), "{way_out}");
        let (restriction, way_out) = found(LIMITS[0], "0");
        assert!(restriction.contains("max_user_namespaces is 0"), "{restriction}");
        assert!(way_out.contains("user.max_user_namespaces=10000"), "{way_out}");
    }

    #[test]
    fn without_a_known_restriction_the_kernels_word_is_passed_on() {
        let (restriction, way_out) = found(APPARMOR, "0");
        assert!(restriction.contains("Operation not permitted"), "{restriction}");
        assert!(way_out.contains("as root"), "{way_out}");
    }
}
