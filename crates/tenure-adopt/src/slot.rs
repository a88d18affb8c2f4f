//! The cluster slot of a key: the rule that servers use.

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// The part of a key that determines its slot: the text between the first `{` and the next `}`, or the whole key if
/// that text is missing or empty.
pub(crate) fn hash_tag(key: &[u8]) -> &[u8] {
    tag_in(key).unwrap_or(key)
}

/// The hash tag, when the key has one.
pub(crate) fn tag_in(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

/// The slot of a key.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// CRC-16 with the polynomial 0x1021 and the initial value 0 (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let carry = crc & 0x8000 != 0;
            (crc << 1) ^ if carry { 0x1021 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc16_matches_its_check_value() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn slots_match_those_of_a_server() {
        // Computed by a server with CLUSTER KEYSLOT.
        for (key, slot_of_key) in [
            (&b"foo"[..], 12_182),
            (b"bar", 5_061),
            (b"hello", 866),
            (b"connections:registry", 1_337),
            (b"instance:heartbeat:a", 166),
            (b"", 0),
        ] {
            assert_eq!(slot(key), slot_of_key, "{:?}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn empty_hash_tags_are_ignored() {
        for (key, tag) in [
            ("{fleet}:hb:a", "fleet"),
            ("hb:{fleet}:{b}", "fleet"),
            ("{}:hb", "{}:hb"),
            ("{}{x}", "{}{x}"),
            ("a}b{c}", "c"),
            ("{open", "{open"),
            ("{{x}}", "{x"),
            ("plain", "plain"),
        ] {
            assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }
}
