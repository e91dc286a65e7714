//! Which device carries the packets, and what to say where it cannot be had.

use serde::{Deserialize, Serialize};
use skyhop_model::LiveDevice;

use crate::error::HostError;

/// What carries packets between the kernel and the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// TUN devices.
    #[default]
    Tun,
    /// A veth pair and packet sockets for each end.
    Packet,
    /// A veth device for each end, with routers between them.
    Veth,
}

impl DeviceKind {
    /// Its name in `live.device`.
    fn name(self) -> &'static str {
        match self {
            Self::Tun => "tun",
            Self::Packet => "packet",
            Self::Veth => "veth",
        }
    }
}

/// Why a device could not be made.
#[derive(Debug)]
pub enum Failure {
    /// This system does not offer it to this user; the other kind may do.
    Unavailable(Problem),
    /// Something failed that normally does not.
    Broken(HostError),
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::Broken(error)
    }
}

/// What keeps a user from a device, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub what: String,
    pub way_out: String,
}

/// Makes the device that was asked for; where nothing was, the one that is preferred, or else the other.
///
/// The other kind is tried too before an error recommends it.
pub fn choose<T>(
    asked: LiveDevice,
    preferred: DeviceKind,
    mut make: impl FnMut(DeviceKind) -> Result<T, Failure>,
) -> Result<T, HostError> {
    let first = match asked {
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
    match make(second) {
        Ok(made) if asked == LiveDevice::Auto => Ok(made),
        Ok(_) => Err(other_works(problem, second)),
        Err(Failure::Unavailable(other)) => Err(neither((first, problem), (second, other))),
        Err(Failure::Broken(error)) if asked == LiveDevice::Auto => Err(error),
        Err(Failure::Broken(error)) => {
            let way_out = "report this, please".to_owned();
            let other = Problem { what: error.to_string(), way_out };
            Err(neither((first, problem), (second, other)))
        }
    }
}

fn other_works(problem: Problem, other: DeviceKind) -> HostError {
    let Problem { what, way_out } = problem;
    let other = other.name();
    let way_out = format!(
        "set live.device to \"auto\" or \"{other}\", which works here; for the one that was asked \
         for, {way_out}"
    );
    HostError::DeviceUnavailable { problem: what, way_out }
}

fn neither(one: (DeviceKind, Problem), other: (DeviceKind, Problem)) -> HostError {
    let ((one, of_one), (other, of_other)) = (one, other);
    HostError::DeviceUnavailable {
        problem: format!("nothing can carry packets here: {}, and {}", of_one.what, of_other.what),
        way_out: format!(
            "either of two would do; for live.device = \"{}\", {}; for \"{}\", {}",
            one.name(),
            of_one.way_out,
            other.name(),
            of_other.way_out
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(what: &str, way_out: &str) -> Failure {
        Failure::Unavailable(Problem { what: what.to_owned(), way_out: way_out.to_owned() })
    }

    /// Chooses on a system with these problems, and none with the other kind.
    fn chosen(asked: LiveDevice, broken: &[DeviceKind]) -> Result<DeviceKind, String> {
        let make = |kind| match (kind, broken.contains(&kind)) {
            (DeviceKind::Tun, true) => Err(problem("TUN is locked", "unlock TUN")),
            (DeviceKind::Packet, true) => Err(problem("there is no veth", "load veth")),
            _ => Ok(kind),
        };
        choose(asked, DeviceKind::Tun, make).map_err(|error| error.to_string())
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
    fn who_asks_for_one_is_told_of_the_other_where_that_works() {
        use DeviceKind::{Packet, Tun};
        assert_eq!(
            chosen(LiveDevice::Tun, &[Tun]).unwrap_err(),
            "TUN is locked; set live.device to \"auto\" or \"packet\", which works here; for the \
             one that was asked for, unlock TUN"
        );
        let message = chosen(LiveDevice::Packet, &[Packet]).unwrap_err();
        assert!(message.starts_with("there is no veth; set live.device to \"auto\" or \"tun\""));
    }

    #[test]
    fn where_neither_works_both_ways_out_are_named() {
        use DeviceKind::{Packet, Tun};
        assert_eq!(
            chosen(LiveDevice::Auto, &[Tun, Packet]).unwrap_err(),
            "nothing can carry packets here: TUN is locked, and there is no veth; either of two \
             would do; for live.device = \"tun\", unlock TUN; for \"packet\", load veth"
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
