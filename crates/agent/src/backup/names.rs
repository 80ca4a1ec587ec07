//! The names of backups: `<namespace>.<name>.<YYYYMMDDThhmmssZ>.<root>-<object>.tar.age`, with the first
//! digits of the root's key and of the ZitiController's uid: a network that was made anew under the name
//! of one that is lost, or a copy of it in another cluster, never deletes its backups. The names of before
//! have neither, and are never deleted. No store and no clock here.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// How each ends.
const END: &str = ".tar.age";
/// A time as it stands in a name; names sort by it.
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// How many digits are taken of either.
const DIGITS: usize = 8;

/// Whose a backup is, beyond the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin(String);

impl Origin {
    /// Of the identifier of the root's key and the uid of the ZitiController, both in hexadecimal digits.
    pub(super) fn new(root_key_id: &str, uid: &str) -> Self {
        let uid: String = uid.chars().filter(char::is_ascii_hexdigit).collect();
        Self(format!("{}-{}", short(root_key_id), short(&uid)))
    }
}

fn short(digits: &str) -> String {
    let digits = digits.chars().chain(std::iter::repeat('0')).take(DIGITS);
    digits.collect::<String>().to_ascii_lowercase()
}

/// The backups of one ZitiController.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// Its namespace, which has no dot in it.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Series {
    /// The file of the backup that was taken then.
    pub(super) fn file(&self, taken_at: Timestamp, origin: &Origin) -> String {
        let time = taken_at.to_zoned(TimeZone::UTC).strftime(TIME);
        let Origin(origin) = origin;
        format!("{}.{}.{time}.{origin}{END}", self.namespace, self.name)
    }

    /// Whether a file is one of these. Another network's name may begin with this one's.
    pub(super) fn has(&self, file: &str) -> bool {
        self.origin(file).is_some()
    }

    /// Whose a file is, if it is one of these: empty where its name is one of before.
    fn origin<'a>(&self, file: &'a str) -> Option<&'a str> {
        let rest = file.strip_prefix(self.namespace.as_str())?;
        let rest = rest.strip_prefix('.')?.strip_prefix(self.name.as_str())?;
        let rest = rest.strip_prefix('.')?.strip_suffix(END)?;
        let (time, origin) = match rest.split_once('.') {
            Some((time, origin)) if is_origin(origin) => (time, origin),
            Some(_) => return None,
            None => (rest, ""),
        };
        (time.len() == "YYYYMMDDThhmmssZ".len() && is_time(time)).then_some(origin)
    }

    /// The digits of its root, if it is one of these and says them.
    fn root<'a>(&self, file: &'a str) -> &'a str {
        let origin = self.origin(file).unwrap_or_default();
        origin.split_once('-').map_or("", |(root, _)| root)
    }

    /// Those of the files that are of this very network and ZitiController, the newest first.
    pub(super) fn own(&self, files: Vec<String>, origin: &Origin) -> Vec<String> {
        let mut files = self.newest_first(files);
        files.retain(|file| self.origin(file) == Some(origin.0.as_str()));
        files
    }

    /// Those of the files that may be of the network whose root has that key, the newest first; where the
    /// key is not known, and they are of several networks, the newest of each as an error.
    pub(super) fn candidates(
        &self,
        files: Vec<String>,
        root_key_id: Option<&str>,
    ) -> Result<Vec<String>, Vec<String>> {
        let mut files = self.newest_first(files);
        // What has a name of before says nothing of its root.
        if let Some(wanted) = root_key_id.map(short) {
            files.retain(|file| self.root(file).is_empty() || self.root(file) == wanted);
            return Ok(files);
        }
        let mut newest: Vec<String> = Vec::new();
        for file in files.iter().filter(|file| !self.root(file).is_empty()) {
            if !newest.iter().any(|one| self.root(one) == self.root(file)) {
                newest.push(file.clone());
            }
        }
        if newest.len() > 1 {
            Err(newest)
        } else {
            Ok(files)
        }
    }

    /// Those of the files that are of this series, the newest first.
    pub(super) fn newest_first(&self, files: Vec<String>) -> Vec<String> {
        let files = files.into_iter().filter(|file| self.has(file));
        let mut files: Vec<_> = files.collect();
        files.sort_unstable_by(|one, other| other.cmp(one));
        files
    }
}

fn is_origin(text: &str) -> bool {
    let is_short =
        |text: &str| text.len() == DIGITS && text.bytes().all(|it| it.is_ascii_hexdigit());
    text.split_once('-')
        .is_some_and(|(root, object)| is_short(root) && is_short(object))
}

fn is_time(text: &str) -> bool {
    jiff::civil::DateTime::strptime(TIME, text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> Series {
        Series {
            namespace: "ns".to_owned(),
            name: "net".to_owned(),
        }
    }

    #[test]
    fn a_name_says_when_in_utc() {
        let at = "2030-02-03T04:05:06.789+02:00".parse().unwrap();
        let origin = Origin::new("0A1B2C3D4E5F", "7c9e6679-7425-40de-944b-e07fc1f90ae7");
        let file = "ns.net.20300203T020506Z.0a1b2c3d-7c9e6679.tar.age";
        assert_eq!(series().file(at, &origin), file);
        assert!(series().has(file));
        assert!(series().has("ns.net.20300203T020506Z.tar.age"));
    }

    #[test]
    fn nothing_of_others_is_taken_for_ones_own() {
        for other in [
            "ns.net.20300203T020506Z.tar.age.part",
            "ns.net.20300203T020506Z.tar",
            "ns.net.2.20300203T020506Z.tar.age",
            "ns.network.20300203T020506Z.tar.age",
            "other.ns.net.20300203T020506Z.tar.age",
            "ns2.net.20300203T020506Z.tar.age",
            "ns.net.20301303T020506Z.tar.age",
            "ns.net.20300203T020506Z.0a1b2c3d.tar.age",
            "ns.net.20300203T020506Z.0a1b2c3d-7c9e667x.tar.age",
            "ns.net.20300203T020506Z.0a1b2c3d-7c9e6679.2.tar.age",
            "ns.net.2030203T0205060Z.tar.age",
            "ns.net.notes.tar.age",
            "ns.net.tar.age",
            "ns.net",
            "",
        ] {
            assert!(!series().has(other), "{other}");
        }
        let dotted = Series {
            name: "net.2".to_owned(),
            ..series()
        };
        assert!(dotted.has("ns.net.2.20300203T020506Z.tar.age"));
    }

    #[test]
    fn a_network_of_the_same_name_is_another() {
        let of = |day: u8, origin: &str| format!("ns.net.203001{day:02}T000000Z.{origin}.tar.age");
        let old = "ns.net.20290101T000000Z.tar.age".to_owned();
        let lost = of(3, "aaaaaaaa-11111111");
        let copy = of(4, "aaaaaaaa-22222222");
        let anew = of(5, "bbbbbbbb-33333333");
        let all = || vec![old.clone(), lost.clone(), copy.clone(), anew.clone()];
        let own = |root: &str, uid: &str| series().own(all(), &Origin::new(root, uid));
        assert_eq!(own("bbbbbbbbff", "33333333-ff"), [anew.as_str()]);
        assert_eq!(own("aaaaaaaaff", "11111111-ff"), [lost.as_str()]);
        assert!(own("cccccccc", "11111111-ff").is_empty());

        let candidates = |files, root| series().candidates(files, root);
        let refused = candidates(all(), None).unwrap_err();
        assert_eq!(refused, [anew.clone(), copy.clone()]);
        let known = candidates(all(), Some("AAAAAAAAff")).unwrap();
        assert_eq!(known, [copy.clone(), lost.clone(), old.clone()]);
        let one = vec![old.clone(), lost.clone(), copy.clone()];
        assert_eq!(candidates(one, None).unwrap(), [copy, lost, old.clone()]);
        assert_eq!(candidates(vec![old.clone()], None).unwrap(), [old]);
    }

    #[test]
    fn the_newest_come_first() {
        let file = |day: u8| format!("ns.net.203001{day:02}T000000Z.tar.age");
        let files = vec![file(2), "notes".to_owned(), file(10), file(1)];
        let sorted = series().newest_first(files);
        assert_eq!(sorted, [file(10), file(2), file(1)]);
    }
}
