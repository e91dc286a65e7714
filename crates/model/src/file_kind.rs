//! Kinds of files that no reader reads, told apart by their first bytes.

/// Number of bytes from which [`other_kind`] tells a file's kind.
pub const KIND_BYTES: usize = 300;

/// First bytes of files, and what a message says of such a file.
const KINDS: [(&[u8], &str); 16] = [
    (b"\xfd7zXZ\0", "is compressed by xz: unpack it with xz -d first"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd: unpack it with zstd -d first"),
    (b"BZh", "is compressed by bzip2: unpack it with bzip2 -d first"),
    (b"\x04\x22\x4d\x18", "is compressed by lz4: unpack it with lz4 -d first"),
    (b"\x1f\x8b", "is compressed twice by gzip: unpack it with gzip -d first"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive: unpack it and give one of its files"),
    (b"PK\x03\x04", "is a zip archive: unpack it and give one of its files"),
    (
        b"SQLite format 3\0",
        "is an SQLite database: export the table as CSV, such as with sqlite3 -header -csv",
    ),
    (b"PAR1", "is a Parquet file, which is not read here"),
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 file, which is not read here: export its values as CSV"),
    (b"%PDF-", "is a PDF document"),
    (b"\x89PNG", "is a PNG image"),
    (b"\x7fELF", "is a program"),
    (b"#EXTM3U", "is an HLS playlist, which is not read: give a DASH manifest (.mpd)"),
    (
        b"CCSDS_OEM_VERS",
        "is an OEM of ephemerides, which is not read: give element sets (TLE or OMM)",
    ),
    (
        b"CCSDS_CDM_VERS",
        "is a CDM of conjunctions, which is not read: give element sets (TLE or OMM)",
    ),
];

/// Description of a file that begins with these bytes, for messages; `None` if a reader may read it.
pub fn other_kind(beginning: &[u8]) -> Option<&'static str> {
    const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");
    let begin = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(beginning);
    if begin.get(TAR_MAGIC.0..).is_some_and(|rest| rest.starts_with(TAR_MAGIC.1)) {
        return Some("is a tar archive: unpack it and give one of its files");
    }
    KINDS.iter().find(|(magic, _)| begin.starts_with(magic)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_named_for_what_they_are() {
        for (magic, what) in KINDS {
            assert_eq!(other_kind(&[magic, b"more"].concat()), Some(what));
            assert_eq!(other_kind(&magic[..magic.len() - 1]), None, "{what}");
        }
        let mut archive = vec![b'a'; KIND_BYTES];
        archive[257..262].copy_from_slice(b"ustar");
        assert!(other_kind(&archive).unwrap().contains("tar archive"));
        assert!(other_kind(b"\xef\xbb\xbf#EXTM3U\n").unwrap().contains("HLS"));
        assert_eq!(other_kind(b"PING 192.0.2.1"), None);
    }
}
