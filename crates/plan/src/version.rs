//! Versions of Ziti, as images and controllers tell them.

/// Major and minor version in a text such as `v1.6.0`; none where it is another
/// kind of text, such as `latest`.
pub(crate) fn of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The version in the tag of an image.
pub(crate) fn of_image(image: &str) -> Option<(u32, u32)> {
    let (name, _digest) = image.split_once('@').unwrap_or((image, ""));
    of(name.rsplit_once(':')?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_with_and_without_their_letter() {
        assert_eq!(of("v1.6.0"), Some((1, 6)));
        assert_eq!(of("latest"), None);
        assert_eq!(of_image("r.example:5000/ziti-router:2.0.3"), Some((2, 0)));
        assert_eq!(of_image("r.example:5000/ziti-router"), None);
        assert_eq!(of_image("ziti-router:1.6.0@sha256:ab"), Some((1, 6)));
    }
}
