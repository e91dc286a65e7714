//! Differentiated services in the IP header (RFC 2474): what a packet asks of the queues on its way.

words! {
    /// A codepoint, by the names that RFC 4594, RFC 5865 and RFC 8622 give them.
    #[derive(Default)]
    Dscp ["DSCP"] {
        /// Best effort, as almost everything is.
        #[default]
        Cs0 = "cs0",
        /// Lower effort (RFC 8622): it yields to all others.
        Le = "le",
        /// Once what `le` is now; queues still take it so.
        Cs1 = "cs1",
        /// High-throughput data; the second digit is the drop precedence, here and below.
        Af11 = "af11",
        /// As above.
        Af12 = "af12",
        /// As above.
        Af13 = "af13",
        /// Operations and management.
        Cs2 = "cs2",
        /// Low-latency data.
        Af21 = "af21",
        /// As above.
        Af22 = "af22",
        /// As above.
        Af23 = "af23",
        /// Broadcast video.
        Cs3 = "cs3",
        /// Multimedia streaming.
        Af31 = "af31",
        /// As above.
        Af32 = "af32",
        /// As above.
        Af33 = "af33",
        /// Real-time interactive, such as games.
        Cs4 = "cs4",
        /// Multimedia conferencing.
        Af41 = "af41",
        /// As above.
        Af42 = "af42",
        /// As above.
        Af43 = "af43",
        /// Signalling.
        Cs5 = "cs5",
        /// Capacity-admitted voice (RFC 5865).
        Va = "va",
        /// Telephony: expedited forwarding (RFC 3246).
        Ef = "ef",
        /// Network control.
        Cs6 = "cs6",
        /// As above, and beyond the reach of users.
        Cs7 = "cs7",
    }
}

impl Dscp {
    /// The six bits.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Cs0 => 0,
            Self::Le => 1,
            Self::Cs1 => 8,
            Self::Af11 => 10,
            Self::Af12 => 12,
            Self::Af13 => 14,
            Self::Cs2 => 16,
            Self::Af21 => 18,
            Self::Af22 => 20,
            Self::Af23 => 22,
            Self::Cs3 => 24,
            Self::Af31 => 26,
            Self::Af32 => 28,
            Self::Af33 => 30,
            Self::Cs4 => 32,
            Self::Af41 => 34,
            Self::Af42 => 36,
            Self::Af43 => 38,
            Self::Cs5 => 40,
            Self::Va => 44,
            Self::Ef => 46,
            Self::Cs6 => 48,
            Self::Cs7 => 56,
        }
    }

    /// The byte of the IPv4 TOS or the IPv6 traffic class that says it, without ECN bits.
    pub const fn tos(self) -> u8 {
        self.bits() << 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_stand_where_their_names_say() {
        for dscp in Dscp::ALL {
            let (kind, digits) = dscp.name().split_at(2);
            let digit = |place: usize| digits.as_bytes().get(place).map_or(0, |byte| byte - b'0');
            let expected = match kind {
                // RFC 2474 4.2.2.1 and RFC 2597 6.
                "cs" => digit(0) << 3,
                "af" => (digit(0) << 3) | (digit(1) << 1),
                _ => dscp.bits(),
            };
            assert_eq!(dscp.bits(), expected, "{dscp}");
        }
        assert_eq!((Dscp::Le.bits(), Dscp::Va.bits(), Dscp::Ef.bits()), (1, 44, 46));
        assert_eq!((Dscp::Ef.tos(), Dscp::default().tos()), (0xb8, 0));
    }
}
