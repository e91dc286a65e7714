//! Blocks of a capture file in the pcapng format, with times in nanoseconds (draft-ietf-opsawg-pcapng).

use std::borrow::Cow;

use pcap_parser::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, Linktype, OptionCode, PcapNGOption,
    SectionHeaderBlock, ToVec,
};
use skyhop_units::UtcInstant;

use crate::CapturedPacket;

/// Packets of an interface begin with their IP header (LINKTYPE_RAW).
const RAW_IP: Linktype = Linktype(101);
/// Resolution of times as a negative power of ten.
const NANOSECONDS: u8 = 9;
/// Option of interfaces with the resolution of times (if_tsresol).
const RESOLUTION: u16 = 9;
/// Option of interfaces with their names (if_name).
const NAME: u16 = 2;
/// Option of sections with the program that writes them (shb_userappl).
const APPLICATION: u16 = 4;
/// Option of any block with a comment (opt_comment).
const COMMENT: u16 = 1;
/// Option of packets with their direction (epb_flags).
const FLAGS: u16 = 2;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Begin of a file: the section by the given program, and an interface for each name.
pub fn begin(program: &str, interfaces: impl IntoIterator<Item = String>) -> Vec<u8> {
    let section = SectionHeaderBlock {
        block_type: 0,
        block_len1: 0,
        bom: 0,
        major_version: 1,
        minor_version: 0,
        section_len: -1,
        options: vec![option(APPLICATION, program.as_bytes())],
        block_len2: 0,
    };
    let mut bytes = written(section);
    for name in interfaces {
        bytes.extend(written(InterfaceDescriptionBlock {
            block_type: 0,
            block_len1: 0,
            linktype: RAW_IP,
            reserved: 0,
            snaplen: 0,
            options: vec![option(NAME, name.as_bytes()), option(RESOLUTION, &[NANOSECONDS])],
            block_len2: 0,
            if_tsresol: NANOSECONDS,
            if_tsoffset: 0,
        }));
    }
    bytes
}

/// Block of a packet; `start` is the begin of the run.
pub fn packet(packet: &CapturedPacket, start: UtcInstant) -> Vec<u8> {
    let at_ns = start.unix_nanos().saturating_add_unsigned(packet.at.as_nanos()).max(0) as u64;
    let direction = if packet.outbound { OUTBOUND } else { INBOUND };
    let mut options = vec![option(FLAGS, &direction.to_le_bytes())];
    options.extend(packet.comment.as_ref().map(|text| option(COMMENT, text.as_bytes())));
    // The serialiser adds the padding of the data, but counts only what is there.
    let data = padded(&packet.headers);
    written(EnhancedPacketBlock {
        block_type: 0,
        block_len1: 0,
        if_id: packet.interface,
        ts_high: (at_ns >> 32) as u32,
        ts_low: at_ns as u32,
        caplen: packet.headers.len() as u32,
        origlen: packet.ip_bytes,
        data: &data,
        options,
        block_len2: 0,
    })
}

fn option(code: u16, value: &[u8]) -> PcapNGOption<'static> {
    PcapNGOption {
        code: OptionCode(code),
        len: value.len() as u16,
        value: Cow::Owned(padded(value).into_owned()),
    }
}

/// The bytes with zeros up to a multiple of four.
fn padded(bytes: &[u8]) -> Cow<'_, [u8]> {
    let missing = bytes.len().next_multiple_of(4) - bytes.len();
    if missing == 0 {
        Cow::Borrowed(bytes)
    } else {
        Cow::Owned([bytes, &vec![0; missing]].concat())
    }
}

fn written(mut block: impl ToVec) -> Vec<u8> {
    block.to_vec().expect("a vector takes all bytes")
}

#[cfg(test)]
mod tests {
    use pcap_parser::traits::PcapNGPacketBlock as _;
    use pcap_parser::{Block, parse_block_le};
    use skyhop_units::Instant;

    use super::*;

    #[test]
    fn another_parser_reads_what_was_written() {
        let captured = CapturedPacket {
            at: Instant::from_nanos(1_500_000_001),
            interface: 1,
            outbound: false,
            ip_bytes: 1500,
            headers: (0..54).collect(),
            comment: Some("lost: queue".to_owned()),
        };
        let start = UtcInstant::from_unix_nanos(1_700_000_000_000_000_000);
        let names = ["path from", "path to"].map(str::to_owned);
        let bytes = [begin("skyhop", names), packet(&captured, start)].concat();
        let (rest, section) = parse_block_le(&bytes).unwrap();
        assert!(matches!(section, Block::SectionHeader(_)));
        let (rest, first) = parse_block_le(rest).unwrap();
        let (rest, second) = parse_block_le(rest).unwrap();
        for (block, name) in [(first, "path from"), (second, "path to")] {
            let Block::InterfaceDescription(interface) = block else { panic!("an interface") };
            assert_eq!(interface.if_name().unwrap().unwrap(), name);
            assert_eq!((interface.linktype, interface.if_tsresol), (RAW_IP, NANOSECONDS));
        }
        let (rest, block) = parse_block_le(rest).unwrap();
        let Block::EnhancedPacket(read) = block else { panic!("a packet") };
        assert_eq!((read.if_id, read.caplen, read.origlen), (1, 54, 1500));
        assert_eq!(read.packet_data(), &captured.headers[..]);
        let at_ns = u64::from(read.ts_high) << 32 | u64::from(read.ts_low);
        assert_eq!(at_ns, 1_700_000_001_500_000_001);
        let comment = read.options.iter().find(|option| option.code == OptionCode(COMMENT));
        assert_eq!(comment.unwrap().as_str().unwrap(), "lost: queue");
        assert!(rest.is_empty());
    }
}
