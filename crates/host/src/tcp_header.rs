//! Acknowledgement information in a packet's TCP header (RFC 9293 3.1, RFC 2018 3, RFC 7323 3).

use skyhop_link::TcpFacts;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// Flags ECE and CWR of the TCP header.
const ECN_FLAGS: u8 = 0xc0;

const END_OF_OPTIONS: u8 = 0;
const NO_OPTION: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// Parse an IPv4 packet; `None` if it is not a TCP segment, is a SYN, has no ACK flag, or is a fragment or truncated.
pub(crate) fn read(ip: &[u8]) -> Option<TcpFacts> {
    let fixed = ip.first_chunk::<20>().filter(|fixed| fixed[0] >> 4 == 4)?;
    let is_whole = fixed[6] & 0x3f == 0 && fixed[7] == 0;
    if i32::from(fixed[9]) != libc::IPPROTO_TCP || !is_whole {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let tcp = ip.get(usize::from(fixed[0] & 0x0f) * 4..length)?;
    let header = tcp.first_chunk::<20>()?;
    let (options_end, flags) = (usize::from(header[12] >> 4) * 4, header[13]);
    if flags & (SYN | ACK) != ACK {
        return None;
    }
    let options = Options::read(tcp.get(20..options_end)?);
    // The reserved bits must be zero too.
    let is_plain = flags & !ECN_FLAGS == ACK && header[12] & 0x0f == 0;
    Some(TcpFacts {
        connection: connection(fixed, header),
        acknowledged: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        is_pure: is_plain && !options.has_others && tcp.len() == options_end,
        ecn_flags: flags & ECN_FLAGS,
        timestamps: options.timestamps,
        sacks: options.sacks,
    })
}

/// Hash of a connection: FNV-1a of its addresses and ports.
fn connection(ip: &[u8; 20], tcp: &[u8; 20]) -> u64 {
    ip[12..].iter().chain(&tcp[..4]).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[derive(Default)]
struct Options {
    timestamps: Option<[u32; 2]>,
    sacks: [Option<[u32; 2]>; 4],
    /// Whether the header has other options, or malformed ones.
    has_others: bool,
}

impl Options {
    fn read(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        while let [kind, rest @ ..] = bytes {
            match (*kind, rest) {
                (END_OF_OPTIONS, _) => break,
                (NO_OPTION, _) => bytes = rest,
                (kind, [length, ..]) if (2..=bytes.len()).contains(&usize::from(*length)) => {
                    let (option, behind) = bytes.split_at(usize::from(*length));
                    options.add(kind, &option[2..]);
                    bytes = behind;
                }
                // Linux stops parsing at a malformed option too.
                _ => break,
            }
        }
        options
    }

    fn add(&mut self, kind: u8, value: &[u8]) {
        let mut pairs = value.chunks_exact(8).map(|pair| {
            let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| pair[at + byte]));
            [word(0), word(4)]
        });
        match (kind, value.len()) {
            (TIMESTAMPS, 8) => self.timestamps = pairs.next(),
            (SACK, length) if length % 8 == 0 => {
                self.sacks.iter_mut().zip(pairs).for_each(|(place, pair)| *place = Some(pair));
            }
            _ => self.has_others = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv4 packet with a TCP segment of these flags and options, and `data` bytes of payload.
    fn segment(flags: u8, options: &[u8], data: usize) -> Vec<u8> {
        let (header, length) = (20 + options.len(), 40 + options.len() + data);
        let mut ip = vec![0x45, 0, (length >> 8) as u8, length as u8, 0, 0, 0x40, 0, 64, 6, 0, 0];
        ip.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 0xee, 0x48, 0, 0, 0, 9, 0, 1, 0, 7]);
        ip.extend([(header as u8 / 4) << 4, flags, 1, 0, 0, 0, 0, 0]);
        ip.extend(options);
        ip.resize(length, 0);
        ip
    }

    const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 3];

    #[test]
    fn an_acknowledgement_says_what_has_arrived() {
        let with_sack = [&STAMPS[..], &[1, 1, 5, 10, 0, 1, 1, 0, 0, 1, 2, 0]].concat();
        let facts = read(&segment(ACK | 0x40, &with_sack, 0)).unwrap();
        assert_eq!((facts.acknowledged, facts.is_pure, facts.ecn_flags), (0x1_0007, true, 0x40));
        assert_eq!(facts.timestamps, Some([5, 3]));
        assert_eq!(facts.sacks, [Some([0x1_0100, 0x1_0200]), None, None, None]);
    }

    #[test]
    fn segments_that_carry_more_are_not_pure() {
        let facts = |flags, options: &[u8], data| read(&segment(flags, options, data)).unwrap();
        assert!(facts(ACK, &[], 0).is_pure && facts(ACK, &STAMPS, 0).timestamps.is_some());
        assert!(!facts(ACK, &STAMPS, 1).is_pure, "data");
        assert!(!facts(ACK | 0x08, &STAMPS, 0).is_pure, "PSH");
        assert!(!facts(ACK | 0x01, &STAMPS, 0).is_pure, "FIN");
        assert!(!facts(ACK, &[2, 4, 5, 0xb4], 0).is_pure, "an MSS");
        assert!(!facts(ACK, &[8, 6, 0, 0, 0, 0, 0, 0], 0).is_pure, "timestamps of another length");
    }

    #[test]
    fn segments_without_an_acknowledgement_are_ignored() {
        assert_eq!(read(&segment(SYN | ACK, &STAMPS, 0)), None);
        assert_eq!(read(&segment(0, &STAMPS, 0)), None);
        let mut udp = segment(ACK, &STAMPS, 0);
        udp[9] = 17;
        assert_eq!(read(&udp), None);
        let whole = segment(ACK, &STAMPS, 30);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn damaged_headers_say_something_or_nothing() {
        let samples =
            [segment(ACK, &STAMPS, 0), segment(ACK, &[5, 10, 0, 0, 0, 1, 0, 0, 0, 9, 1, 1], 4)];
        skyhop_needs::fuzz::Trial::of_bytes("TCP headers", samples)
            .run(|bytes| read(bytes).map(drop).ok_or("it acknowledges nothing"));
    }
}
