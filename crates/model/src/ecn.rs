//! Explicit congestion notification in the IP header (RFC 3168 5).

words! {
    /// ECN codepoint of an IP packet, in the order of the two bits' values.
    #[derive(Default)]
    #[repr(u8)]
    Ecn ["ECN codepoint"] {
        /// Not ECN-capable: a queue can only drop the packet.
        #[default]
        NotEct = "not-ect",
        /// ECN-capable, ECT(1): used by L4S (RFC 9331).
        Ect1 = "ect1",
        /// ECN-capable, ECT(0): used by RFC 3168.
        Ect0 = "ect0",
        /// Congestion experienced: a queue marked the packet.
        Ce = "ce",
    }
}

impl Ecn {
    /// Codepoint in the low two bits of `byte`, the IPv4 TOS or the IPv6 traffic class.
    pub const fn from_tos(byte: u8) -> Self {
        match byte & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Value of the codepoint, two bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Whether a queue may mark the packet rather than drop it; a packet that is marked already stays so.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_rfc_3168() {
        for tos in 0..=u8::MAX {
            assert_eq!(Ecn::from_tos(tos).bits(), tos & 3);
        }
        assert_eq!((Ecn::Ect0.bits(), Ecn::Ce.bits()), (2, 3));
        assert!(!Ecn::NotEct.is_capable() && Ecn::Ce.is_capable());
    }
}
