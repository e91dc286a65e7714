//! What happens at a moment.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::UnknownWord;

words! {
    /// A change of a path.
    PathEventKind ["kind of path event"] {
        /// A user's satellite changed.
        End = "end",
        /// A link in the middle of the path was left or joined, and what it held is lost.
        Intermediate = "intermediate",
        /// Only links between satellites changed; nothing is dismantled.
        Reroute = "reroute",
        /// There is no path from here on.
        Lost = "lost",
        /// There is a path again.
        Restored = "restored",
    }
}

impl PathEventKind {
    /// Whether the path goes on over other nodes.
    pub const fn is_handover(self) -> bool {
        matches!(self, Self::End | Self::Intermediate | Self::Reroute)
    }

    /// Those that are.
    pub fn handovers() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|kind| kind.is_handover())
    }
}

words! {
    /// What a congestion control does about an announced handover, or for want of a decision: `enum skyhop_phase_kind`.
    #[repr(u64)]
    PhaseKind ["phase"] {
        /// The window is not reduced.
        Hold = "hold",
        /// The window is closed before it, so that nothing piles up.
        Drain = "drain",
        /// The window stays closed after it, to see the new path's RTT.
        ProbeRtt = "probe-rtt",
        /// Nothing was decided for so long that the base algorithm decides from its end on.
        Fallback = "fallback",
    }
}

words! {
    /// What an announced handover is: `enum skyhop_handover_kind`.
    #[repr(u32)]
    HandoverKind ["kind of handover"] {
        /// A terminal changes its satellite.
        End = "end",
        /// The route changes between the ends.
        Intermediate = "intermediate",
        /// The source cannot say.
        Unknown = "unknown",
    }
}

/// What a row of events.parquet is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The path changed.
    Path(PathEventKind),
    /// The scenario's `[[change]]`.
    #[default]
    Change,
    /// A packet was lost.
    Loss,
    /// A handover was announced.
    Announcement,
    /// A congestion control does something about a handover.
    Phase(PhaseKind),
}

impl EventKind {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Path(kind) => kind.name(),
            Self::Change => "change",
            Self::Loss => "loss",
            Self::Announcement => "announcement",
            Self::Phase(kind) => kind.name(),
        }
    }

    /// All of them, in the order in which tables show them.
    pub fn all() -> impl Iterator<Item = Self> {
        let path = PathEventKind::ALL.iter().copied().map(Self::Path);
        let phases = PhaseKind::ALL.iter().copied().map(Self::Phase);
        path.chain([Self::Change, Self::Loss, Self::Announcement]).chain(phases)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for EventKind {
    type Err = UnknownWord;
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let known = || Self::all().map(Self::name).collect::<Vec<_>>();
        Self::all()
            .find(|kind| kind.name() == word)
            .ok_or_else(|| UnknownWord::new("kind of event", word, &known()))
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for EventKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_of_event_has_a_name_of_its_own_and_is_found_by_it() {
        let names: BTreeSet<&str> = EventKind::all().map(EventKind::name).collect();
        assert_eq!(names.len(), EventKind::all().count());
        for kind in EventKind::all() {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
    }
}
