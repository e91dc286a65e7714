//! Differentiated services codepoints in the IP header (RFC 2474).

words! {
    /// Differentiated services codepoint, by the names of RFC 4594, RFC 5865 and RFC 8622.
    #[derive(Default)]
    Dscp ["DSCP"] {
        /// Default forwarding (best effort, RFC 2474), which almost all packets have.
        #[default]
        Cs0 = "cs0",
        /// Lower effort (RFC 8622): yields to all other traffic.
        Le = "le",
        /// Class selector 1: low priority before `le` existed; queues still treat it so.
        Cs1 = "cs1",
        /// Assured forwarding class 1, high-throughput data; low drop precedence, as the second digit says.
        Af11 = "af11",
        /// Assured forwarding class 1, medium drop precedence.
        Af12 = "af12",
        /// Assured forwarding class 1, high drop precedence.
        Af13 = "af13",
        /// Class selector 2: operations and management.
        Cs2 = "cs2",
        /// Assured forwarding class 2, low-latency data; low drop precedence.
        Af21 = "af21",
        /// Assured forwarding class 2, medium drop precedence.
        Af22 = "af22",
        /// Assured forwarding class 2, high drop precedence.
        Af23 = "af23",
        /// Class selector 3: broadcast video.
        Cs3 = "cs3",
        /// Assured forwarding class 3, multimedia streaming; low drop precedence.
        Af31 = "af31",
        /// Assured forwarding class 3, medium drop precedence.
        Af32 = "af32",
        /// Assured forwarding class 3, high drop precedence.
        Af33 = "af33",
        /// Class selector 4: real-time interactive traffic, such as games.
        Cs4 = "cs4",
        /// Assured forwarding class 4, multimedia conferencing; low drop precedence.
        Af41 = "af41",
        /// Assured forwarding class 4, medium drop precedence.
        Af42 = "af42",
        /// Assured forwarding class 4, high drop precedence.
        Af43 = "af43",
        /// Class selector 5: signalling of calls.
        Cs5 = "cs5",
        /// Capacity-admitted voice traffic (RFC 5865).
        Va = "va",
        /// Expedited forwarding (RFC 3246): telephony.
        Ef = "ef",
        /// Class selector 6: network control.
        Cs6 = "cs6",
        /// Class selector 7: network control, reserved to the network's operator.
        Cs7 = "cs7",
    }
}

impl Dscp {
    /// Value of the codepoint, six bits.
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

    /// Byte of the IPv4 TOS or the IPv6 traffic class with this codepoint, ECN bits zero.
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
