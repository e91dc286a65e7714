//! Mapping of DSCPs to tins, and each tin's share of the rate: `cake_config_diffserv3` and the other presets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::Dscp::{self, *};
use skyhop_units::Rate;

/// Preset of classes into which `cake` sorts packets by their DSCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Diffserv {
    /// One class for all packets; the DSCP is ignored.
    BestEffort,
    /// Eight classes by IP precedence, the first three bits (RFC 791).
    Precedence,
    /// Three classes: background, best effort, and latency-sensitive.
    #[default]
    Diffserv3,
    /// Four classes: background, best effort, video, and latency-sensitive.
    Diffserv4,
    /// Eight classes, close to those of RFC 4594.
    Diffserv8,
}

/// Share of a tin in the rate. Up to this rate the tin has priority over the tins before it; above it, tins that are
/// within their share are served first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Share {
    pub(super) rate: Option<Rate>,
    /// Weight of the tin in the round robin that replaces priorities if no bandwidth is given.
    pub(super) weight: i64,
}

impl Diffserv {
    /// Shares of the tins, in Linux's order of tins.
    pub(super) fn shares(self, bandwidth: Option<Rate>) -> Vec<Share> {
        let bytes_per_s = bandwidth.map(|rate| rate.bits_per_second() / 8);
        let of = |share: fn(u64, u32) -> u64, place: u32, weight: u64| Share {
            // A rate of zero would stop the tin.
            rate: bytes_per_s.map(|all| Rate::from_bits_per_second(share(all, place).max(1) * 8)),
            weight: share(weight, place).max(1) as i64,
        };
        let shifted = |shifts: &[u32]| {
            shifts.iter().map(|shift| of(|all, shift| all >> shift, *shift, 1024)).collect()
        };
        match self {
            Self::BestEffort => vec![Share { rate: bandwidth, weight: 65_535 }],
            Self::Diffserv3 => shifted(&[0, 4, 2]),
            Self::Diffserv4 => shifted(&[0, 4, 1, 2]),
            Self::Precedence | Self::Diffserv8 => {
                (0..8).map(|place| of(seven_eighths, place, 256)).collect()
            }
        }
    }

    /// Tin of each DSCP (six bits), as an index into [`Self::shares`].
    pub(super) fn tins(self) -> [u8; 64] {
        match self {
            Self::BestEffort => [0; 64],
            Self::Precedence => std::array::from_fn(|dscp| dscp as u8 >> 3),
            Self::Diffserv3 => table(0, &DIFFSERV3),
            Self::Diffserv4 => table(0, &DIFFSERV4),
            Self::Diffserv8 => table(2, &DIFFSERV8),
        }
    }
}

/// Multiply by 7/8 `times` times, rounding down each time as Linux does.
fn seven_eighths(all: u64, times: u32) -> u64 {
    (0..times).fold(all, |all, _| all * 7 / 8)
}

/// Map every codepoint to the tin `usual`, except those listed with another tin.
fn table(usual: u8, others: &[(u8, &[Dscp], Option<u8>)]) -> [u8; 64] {
    let mut tins = [usual; 64];
    for (tin, codepoints, older) in others {
        let bits = codepoints.iter().map(|dscp| dscp.bits()).chain(*older);
        bits.for_each(|bits| tins[usize::from(bits)] = *tin);
    }
    tins
}

/// Codepoints of the TOS values for throughput and low delay of RFC 1349, older than DSCPs; they are the third
/// part of a tin's row below.
const THROUGHPUT: Option<u8> = Some(2);
const LOW_DELAY: Option<u8> = Some(4);

const DIFFSERV3: [(u8, &[Dscp], Option<u8>); 2] =
    [(1, &[Le, Cs1], None), (2, &[Va, Ef, Cs6, Cs7], LOW_DELAY)];

const DIFFSERV4: [(u8, &[Dscp], Option<u8>); 3] = [
    (1, &[Le, Cs1], None),
    (2, &[Cs2, Af21, Af22, Af23, Cs3, Af31, Af32, Af33, Af41, Af42, Af43], LOW_DELAY),
    (3, &[Cs4, Cs5, Va, Ef, Cs6, Cs7], None),
];

const DIFFSERV8: [(u8, &[Dscp], Option<u8>); 7] = [
    (0, &[Le], None),
    (1, &[Cs1, Af11, Af12, Af13], THROUGHPUT),
    (3, &[Cs3, Af31, Af32, Af33, Af41, Af42, Af43], None),
    (4, &[Af21, Af22, Af23], LOW_DELAY),
    (5, &[Cs2], None),
    (6, &[Cs4, Cs5, Va, Ef], None),
    (7, &[Cs6, Cs7], None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codepoints_go_where_linux_has_them_go() {
        let in_order = |diffserv: Diffserv| {
            let tins = diffserv.tins();
            Dscp::ALL.iter().map(|dscp| tins[usize::from(dscp.bits())]).collect::<Vec<u8>>()
        };
        // cs0 le cs1 af1x cs2 af2x cs3 af3x cs4 af4x cs5 va ef cs6 cs7
        assert_eq!(
            in_order(Diffserv::Diffserv3),
            [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2]
        );
        assert_eq!(
            in_order(Diffserv::Diffserv4),
            [0, 1, 1, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 2, 2, 3, 3, 3, 3, 3]
        );
        assert_eq!(
            in_order(Diffserv::Diffserv8),
            [2, 0, 1, 1, 1, 1, 5, 4, 4, 4, 3, 3, 3, 3, 6, 3, 3, 3, 6, 6, 6, 7, 7]
        );
        assert_eq!(
            in_order(Diffserv::Precedence),
            [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 6, 7]
        );
        let old = |diffserv: Diffserv| [2, 4].map(|bits| diffserv.tins()[bits]);
        let kinds = [Diffserv::Diffserv3, Diffserv::Diffserv4, Diffserv::Diffserv8];
        assert_eq!(kinds.map(old), [[0, 2], [0, 2], [1, 4]]);
    }

    #[test]
    fn tins_have_the_shares_that_linux_gives_them() {
        let shares = |diffserv: Diffserv| -> Vec<(u64, i64)> {
            let all = Rate::from_bits_per_second(64_000_000);
            let shares = diffserv.shares(Some(all)).into_iter();
            shares
                .map(|share| (share.rate.unwrap().bits_per_second() / 8000, share.weight))
                .collect()
        };
        assert_eq!(shares(Diffserv::BestEffort), [(8000, 65_535)]);
        assert_eq!(shares(Diffserv::Diffserv3), [(8000, 1024), (500, 64), (2000, 256)]);
        assert_eq!(
            shares(Diffserv::Diffserv4),
            [(8000, 1024), (500, 64), (4000, 512), (2000, 256)]
        );
        let eight = [(8000, 256), (7000, 224), (6125, 196), (5359, 171)];
        assert_eq!(shares(Diffserv::Diffserv8)[..4], eight);
        assert!(Diffserv::Diffserv8.shares(None).iter().all(|share| share.rate.is_none()));
    }
}
