//! Source files of a congestion control, with their digests.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use skyhop_model::{CC_NAME_MAX_LEN, CcLanguage, cc_language};

use crate::cache::Headers;
use crate::compiler::{Compilation, Compiler, Target};
use crate::error::CcFileError;
use crate::headers;
use crate::policy;

/// File of a congestion control with the user's headers that it includes, or a card with its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    file: String,
    language: CcLanguage,
    digests: BTreeMap<String, String>,
    /// SHA-256 of the system's headers that the file includes, by absolute path.
    system: BTreeMap<PathBuf, String>,
    uses_announcements: bool,
}

/// Directories of the system's headers. Their digests are part of the key of a compiled object, but not of the
/// digests by which runs on several machines are compared.
const SYSTEM: [&str; 3] = ["/usr/include", "/usr/lib", "/usr/lib64"];

impl Sources {
    /// Read a file and the files on which it depends: those that the compiler reads, or the modules that Python
    /// imports from the file's directory.
    ///
    /// # Errors
    /// [`CcFileError::Read`], [`CcFileError::Name`], [`CcFileError::OtherHeader`], [`CcFileError::NoCompiler`]; an
    /// included file is missing, or the Python file raises an exception.
    pub fn read(file: &Path) -> Result<Self, CcFileError> {
        let path = policy::absolute_path(file);
        let name = path.to_string_lossy().into_owned();
        let Some(language) = cc_language(&name).filter(|_| has_valid_name(&path)) else {
            return Err(CcFileError::Name { file: name });
        };
        let (digests, system) = (BTreeMap::new(), BTreeMap::new());
        let mut sources = Self { file: name, language, digests, system, uses_announcements: false };
        sources.add(&path)?;
        match language {
            CcLanguage::C => sources.add_included()?,
            CcLanguage::Python => sources.add_imported(&path)?,
            CcLanguage::Card => {}
        }
        Ok(sources)
    }

    /// Absolute path of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Language of the file, by its extension.
    pub fn language(&self) -> CcLanguage {
        self.language
    }

    /// SHA-256 of each file, by absolute path.
    pub fn digests(&self) -> &BTreeMap<String, String> {
        &self.digests
    }

    /// Digests of all files that determine a compiled object, except for skyhop's headers.
    pub(crate) fn inputs(&self) -> String {
        format!("{:?} {:?}", self.digests, self.system)
    }

    /// File name without its extension.
    pub(crate) fn name(&self) -> &str {
        skyhop_model::cc_table(&self.file)
    }

    /// Whether the source calls `skyhop_handover`, which reads announcements.
    pub(crate) fn uses_announcements(&self) -> bool {
        self.uses_announcements
    }

    fn add(&mut self, file: &Path) -> Result<(), CcFileError> {
        let name = file.to_string_lossy().into_owned();
        if self.digests.contains_key(&name) {
            return Ok(());
        }
        let content = match self.language {
            CcLanguage::Card => policy::read(file, policy::MOST_CARD, "")?,
            _ => read(file)?,
        };
        self.check_header(file, &name, &content)?;
        self.digests.insert(name, hex(&Sha256::digest(&content)));
        match self.language {
            CcLanguage::C => self.uses_announcements |= calls_announcements(&content),
            CcLanguage::Python => {}
            CcLanguage::Card => self.add_network(file, &content)?,
        }
        Ok(())
    }

    /// Add the files that the compilers of this machine read when they compile the file for any target.
    fn add_included(&mut self) -> Result<(), CcFileError> {
        let headers = Headers::find()?;
        let native = Compiler::find(Target::Native, &self.file)?;
        let others = Target::ALL.into_iter().skip(1);
        let compilers = [native].into_iter().chain(
            // A missing clang, or a header that only a kernel's build needs, is an error of that build.
            others.filter_map(|target| Compiler::find(target, &self.file).ok()),
        );
        let listings: Vec<Compilation> = compilers
            .map(|compiler| compiler.start_listing(&self.file, &headers.path))
            .collect::<Result<_, _>>()?;
        let mut read = BTreeSet::new();
        for (place, listing) in listings.into_iter().enumerate() {
            match listing.finish(&self.file) {
                Ok(output) => read.extend(dependencies(&output.rule)),
                Err(error) if place == 0 => return Err(error),
                Err(_) => {}
            }
        }
        let here = std::env::current_dir().unwrap_or_default();
        for file in read {
            let file: PathBuf = here.join(file).components().collect();
            if file.starts_with(&headers.path) {
                continue;
            }
            match SYSTEM.iter().any(|system| file.starts_with(system)) {
                true => drop(self.system.insert(file.clone(), digest_of(&file)?)),
                false => self.add(&file)?,
            }
        }
        Ok(())
    }

    /// Add the modules that a Python file imports from its own directory.
    fn add_imported(&mut self, file: &Path) -> Result<(), CcFileError> {
        for module in policy::python_modules(file)? {
            let digest = digest_of(&module)?;
            self.digests.insert(module.to_string_lossy().into_owned(), digest);
        }
        Ok(())
    }

    /// Add the digest of a card's network.
    fn add_network(&mut self, card: &Path, content: &[u8]) -> Result<(), CcFileError> {
        let network = policy::network_of(card, content)?;
        let content = policy::read(&network.file, policy::MOST_NETWORK, &network.published)?;
        self.digests
            .insert(network.file.to_string_lossy().into_owned(), hex(&Sha256::digest(&content)));
        match cc_language(&network.file.to_string_lossy()) {
            Some(CcLanguage::Python) => self.add_imported(&network.file),
            _ => Ok(()),
        }
    }

    /// Refuse a file with the name of one of skyhop's headers but other content: the compiler would
    /// prefer it to skyhop's own header.
    fn check_header(&self, file: &Path, name: &str, content: &[u8]) -> Result<(), CcFileError> {
        let plain = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match headers::header(plain) {
            Some(own) if own != content => Err(CcFileError::OtherHeader {
                file: self.file.clone(),
                header: name.to_owned(),
                name: plain.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// Whether the file name is valid: the kernel limits the names of C files; other files are never loaded into it.
fn has_valid_name(file: &Path) -> bool {
    if file.extension().is_some_and(|extension| extension != "c") {
        return true;
    }
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.len() <= CC_NAME_MAX_LEN
        && stem.starts_with(|c: char| c.is_ascii_alphabetic())
        && stem.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn read(file: &Path) -> Result<Vec<u8>, CcFileError> {
    fs::read(file).map_err(|error| CcFileError::Read {
        file: file.to_string_lossy().into_owned(),
        reason: error.to_string(),
    })
}

fn digest_of(file: &Path) -> Result<String, CcFileError> {
    Ok(hex(&Sha256::digest(read(file)?)))
}

fn calls_announcements(content: &[u8]) -> bool {
    String::from_utf8_lossy(content).contains("skyhop_handover(")
}

/// Files in a rule for make, as compilers write it: `TARGET: FILE FILE ...`, over several lines.
///
/// An odd number of backslashes before a space escapes the space, and each pair of them is one backslash; elsewhere
/// backslashes are plain, except before `#` and the end of a line. `$$` is a dollar sign.
fn dependencies(rule: &[u8]) -> Vec<PathBuf> {
    let colon = rule.iter().position(|byte| *byte == b':').map_or(rule.len(), |colon| colon + 1);
    let (mut files, mut file, mut rest) = (Vec::new(), Vec::new(), &rule[colon..]);
    while let Some(byte) = rest.first() {
        let backslashes = rest.iter().take_while(|byte| **byte == b'\\').count();
        let next = rest.get(backslashes);
        let mut taken = backslashes.max(1);
        match (backslashes, next) {
            (0, _) if byte.is_ascii_whitespace() => files.push(std::mem::take(&mut file)),
            (0, _) => {
                file.push(*byte);
                taken += usize::from(rest.starts_with(b"$$"));
            }
            (_, Some(b' ' | b'\t')) => {
                file.extend(std::iter::repeat_n(b'\\', backslashes / 2));
                if backslashes % 2 == 1 {
                    file.extend(next);
                    taken += 1;
                }
            }
            (_, Some(b'\n' | b'\r' | b'#')) => {
                file.extend(std::iter::repeat_n(b'\\', backslashes - 1));
                if next == Some(&b'#') {
                    file.push(b'#');
                    taken += 1;
                }
            }
            _ => file.extend(std::iter::repeat_n(b'\\', backslashes)),
        }
        rest = &rest[taken..];
    }
    files.push(file);
    let names = files.into_iter().filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsString::from_vec(name))).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
    }

    #[test]
    fn a_file_comes_with_all_that_the_compiler_reads() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        fs::create_dir(at.join("a part")).unwrap();
        let included = [
            "#include \"skyhop_cc.h\"",
            " # include  \"part.h\"",
            "#include <stdio.h>",
            "#define MACRO \"macro.h\"",
            "#include MACRO",
            "#include /* a comment */ \"comment.h\"",
            "#include \\",
            "\"continued.h\"",
            "#import \"imported.h\"",
            "%: include \"digraph.h\"",
            "#include \"a part/two #words $.h\"",
            "#ifdef NEVER",
            "#include \"other.h\"",
            "#endif",
            "/* #include \"none.h\" */",
        ];
        write(
            at,
            &[
                ("idea.c", &*included.join("\n")),
                ("part.h", "#pragma once\n#include \"idea.c\"\n#include \"deep.h\"\nint x;\n"),
                ("deep.h", "skyhop_handover(sk, &h)"),
                ("other.h", ""),
                ("a part/two #words $.h", "#include \"../sibling.h\""),
            ],
        );
        let plain = ["macro.h", "comment.h", "continued.h", "imported.h", "digraph.h", "sibling.h"];
        // Compilers take files of equal content for the same file after #import.
        plain.iter().for_each(|name| fs::write(at.join(name), format!("// {name}\n")).unwrap());
        let sources = Sources::read(&at.join("idea.c")).unwrap();
        let mut expected: Vec<&str> = plain.to_vec();
        expected.extend(["deep.h", "idea.c", "part.h", "two #words $.h"]);
        expected.sort_unstable();
        let mut names: Vec<_> =
            sources.digests().keys().map(|name| name.rsplit_once('/').unwrap().1).collect();
        names.sort_unstable();
        assert_eq!(names, expected);
        assert!(sources.uses_announcements());
        assert_eq!(sources.name(), "idea");
        assert!(sources.inputs().contains("/stdio.h"));
        let empty = Sources::read(&at.join("other.h"));
        assert!(matches!(empty, Err(CcFileError::Name { .. })));
        // The digest equals the output of sha256sum.
        let deep = sources.digests().iter().find(|(name, _)| name.ends_with("deep.h")).unwrap().1;
        assert_eq!(*deep, hex(&Sha256::digest("skyhop_handover(sk, &h)")));
        assert_eq!(deep.len(), 64);
    }

    #[test]
    fn a_header_of_the_kernels_build_counts_too() {
        let place = tempfile::tempdir().unwrap();
        let text = "#include \"skyhop_cc.h\"\n#ifndef SKYHOP_SHARED\n#include \"bpf.h\"\n#endif\n";
        write(place.path(), &[("idea.c", text), ("bpf.h", "")]);
        let file = place.path().join("idea.c");
        if Compiler::find(Target::Bpf, "idea.c").is_ok() {
            assert_eq!(Sources::read(&file).unwrap().digests().len(), 2);
        }
    }

    #[test]
    fn rules_of_compilers_are_read_as_make_reads_them() {
        let of = |rule: &str| -> Vec<String> {
            let files = dependencies(rule.as_bytes()).into_iter();
            files.map(|file| file.to_string_lossy().into_owned()).collect()
        };
        let rule = "file: a.c /usr/b.h \\\n  two\\ words.h \\\r\n x\\\\\\ y.h \\#$$c.h d\\e.h\n";
        assert_eq!(of(rule), ["a.c", "/usr/b.h", "two words.h", "x\\ y.h", "#$c.h", "d\\e.h"]);
        assert_eq!(of(""), [""; 0]);
        assert_eq!(of("file: a\\"), ["a\\"]);
    }

    #[test]
    fn names_are_what_the_kernel_takes() {
        let named = |name: &str| has_valid_name(Path::new(name));
        for name in ["a.c", "fifteen_letters.c", "Idea2.c", "as long as you like.py"] {
            assert!(named(name), "{name}");
        }
        for name in ["sixteen_letters_.c", "my-idea.c", "2.c", "a b.c", "ä.c", "_a.c"] {
            assert!(!named(name), "{name}");
        }
    }

    #[test]
    fn a_header_of_skyhops_is_taken_as_it_is_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let own = std::str::from_utf8(headers::header("skyhop_cc.h").unwrap()).unwrap();
        write(place.path(), &[("idea.c", "#include \"skyhop_cc.h\"\n"), ("skyhop_cc.h", own)]);
        assert_eq!(Sources::read(&place.path().join("idea.c")).unwrap().digests().len(), 2);
        write(place.path(), &[("skyhop_cc.h", "typedef int u32;\n")]);
        let refused = Sources::read(&place.path().join("idea.c")).unwrap_err();
        assert!(matches!(refused, CcFileError::OtherHeader { .. }), "{refused}");
    }
}
