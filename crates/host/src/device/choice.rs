//! Choice of the kind of device, and errors if a kind is unavailable.

use serde::{Deserialize, Serialize};
use skyhop_model::LiveDevice;
use tracing::info;

use crate::error::HostError;

/// Kind of device between the kernel and the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// TUN device at each end.
    #[default]
    Tun,
    /// Veth pair with packet sockets at each end.
    Packet,
    /// Veth device at each end, with routers between them.
    Veth,
}

impl DeviceKind {
    /// Name of the kind in `live.device`.
    fn name(self) -> &'static str {
        match self {
            Self::Tun => "tun",
            Self::Packet => "packet",
            Self::Veth => "veth",
        }
    }
}

/// Reason why a device could not be created.
#[derive(Debug)]
pub enum Failure {
    /// The system does not offer the kind to this user; the other kind may work.
    Unavailable(Problem),
    /// A system call failed unexpectedly.
    Broken(HostError),
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::Broken(error)
    }
}

/// Reason why a kind of device is unavailable, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub what: String,
    pub remedy: String,
}

/// Create the requested kind of device; for "auto" the preferred kind or, if that is unavailable,
/// the other kind.
///
/// An error recommends the other kind only after it has been tried.
pub fn choose<T>(
    requested: LiveDevice,
    preferred: DeviceKind,
    mut make: impl FnMut(DeviceKind) -> Result<T, Failure>,
) -> Result<T, HostError> {
    let first = match requested {
        LiveDevice::Auto => preferred,
        LiveDevice::Tun => DeviceKind::Tun,
        LiveDevice::Packet => DeviceKind::Packet,
    };
    let second = if first == DeviceKind::Tun { DeviceKind::Packet } else { DeviceKind::Tun };
    let problem = match make(first) {
        Ok(made) => return Ok(made),
        Err(Failure::Broken(error)) => return Err(error),
        Err(Failure::Unavailable(problem)) => problem,
    };
    info!(kind = first.name(), reason = problem.what, other = second.name(), "device unavailable");
    match make(second) {
        Ok(made) if requested == LiveDevice::Auto => Ok(made),
        Ok(_) => Err(other_works(problem, second)),
        Err(Failure::Unavailable(other)) => Err(neither((first, problem), (second, other))),
        Err(Failure::Broken(error)) if requested == LiveDevice::Auto => Err(error),
        Err(Failure::Broken(error)) => {
            let remedy = "please report this as a bug of skyhop".to_owned();
            let other = Problem { what: error.to_string(), remedy };
            Err(neither((first, problem), (second, other)))
        }
    }
}

fn other_works(problem: Problem, other: DeviceKind) -> HostError {
    let Problem { what, remedy } = problem;
    let other = other.name();
    let remedy = format!(
        "set live.device to \"auto\" or \"{other}\", which works here; to use the requested device, {remedy}"
    );
    HostError::DeviceUnavailable { problem: what, remedy }
}

fn neither(one: (DeviceKind, Problem), other: (DeviceKind, Problem)) -> HostError {
    let ((one, of_one), (other, of_other)) = (one, other);
    HostError::DeviceUnavailable {
        problem: format!("no network device is available: {}, and {}", of_one.what, of_other.what),
        remedy: format!(
            "do one of the following: for live.device = \"{}\", {}; for \"{}\", {}",
            one.name(),
            of_one.remedy,
            other.name(),
            of_other.remedy
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(what: &str, remedy: &str) -> Failure {
        Failure::Unavailable(Problem { what: what.to_owned(), remedy: remedy.to_owned() })
    }

    /// Choose on a system where the kinds in `broken` are unavailable.
    fn chosen(requested: LiveDevice, broken: &[DeviceKind]) -> Result<DeviceKind, String> {
        let make = |kind| match (kind, broken.contains(&kind)) {
            (DeviceKind::Tun, true) => Err(problem("TUN is locked", "unlock TUN")),
            (DeviceKind::Packet, true) => Err(problem("there is no veth", "load veth")),
            _ => Ok(kind),
        };
        choose(requested, DeviceKind::Tun, make).map_err(|error| error.to_string())
    }

    #[test]
    fn tun_is_preferred_and_packet_stands_in() {
        use DeviceKind::{Packet, Tun};
        assert_eq!(chosen(LiveDevice::Auto, &[]), Ok(Tun));
        assert_eq!(chosen(LiveDevice::Auto, &[Tun]), Ok(Packet));
        assert_eq!(chosen(LiveDevice::Auto, &[Packet]), Ok(Tun));
        assert_eq!(chosen(LiveDevice::Packet, &[]), Ok(Packet));
        assert_eq!(chosen(LiveDevice::Tun, &[Packet]), Ok(Tun));
        let packet = choose(LiveDevice::Auto, Packet, Ok::<_, Failure>);
        assert_eq!(packet, Ok(Packet));
    }

    #[test]
    fn an_error_recommends_the_other_kind_if_that_works() {
        use DeviceKind::{Packet, Tun};
        assert_eq!(
            chosen(LiveDevice::Tun, &[Tun]).unwrap_err(),
            "TUN is locked; set live.device to \"auto\" or \"packet\", which works here; to use the requested device, \
                         unlock TUN"
        );
        let message = chosen(LiveDevice::Packet, &[Packet]).unwrap_err();
        assert!(message.starts_with("there is no veth; set live.device to \"auto\" or \"tun\""));
    }

    #[test]
    fn an_error_names_both_remedies_if_neither_kind_works() {
        use DeviceKind::{Packet, Tun};
        assert_eq!(
            chosen(LiveDevice::Auto, &[Tun, Packet]).unwrap_err(),
            "no network device is available: TUN is locked, and there is no veth; do one of the following: for \
                         live.device = \"tun\", unlock TUN; for \"packet\", load veth"
        );
        let message = chosen(LiveDevice::Packet, &[Tun, Packet]).unwrap_err();
        assert!(
            message.ends_with("for live.device = \"packet\", load veth; for \"tun\", unlock TUN")
        );
    }

    #[test]
    fn a_failure_that_is_no_lack_is_passed_on() {
        let broken = || HostError::Unsupported("the moon is in the way".to_owned());
        let result =
            choose(LiveDevice::Auto, DeviceKind::Tun, |_| Err::<(), _>(Failure::Broken(broken())));
        assert_eq!(result, Err(broken()));
    }
}
