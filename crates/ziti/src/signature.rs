//! Does the signature of a token verify under the key of a certificate? For [`crate::trust`].
//!
//! Only asymmetric algorithms are known here, so a token that names `none` or `HS256` fails
//! as such. The key decides as well: an RSA key cannot verify an `ES256` signature.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    UnparsedPublicKey, VerificationAlgorithm,
};
use rustls_pki_types::CertificateDer;

use crate::pki;
use crate::token::EnrollmentToken;

/// Why a signature was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The header names an algorithm that is not accepted.
    Algorithm,
    /// It does not verify under that key.
    Mismatch,
}

/// Verifies `token` under the public key of `certificate`.
pub(crate) fn verify(
    token: &EnrollmentToken,
    certificate: &CertificateDer<'_>,
) -> Result<(), Refusal> {
    let algorithm = algorithm(token.algorithm()).ok_or(Refusal::Algorithm)?;
    let certificate = pki::parse(certificate).map_err(|_| Refusal::Mismatch)?;
    let (message, signature) = token.signed_parts().ok_or(Refusal::Mismatch)?;
    let key = &certificate.public_key().subject_public_key.data;
    UnparsedPublicKey::new(algorithm, key)
        .verify(message.as_bytes(), &signature)
        .map_err(|_| Refusal::Mismatch)
}

/// The algorithms of RFC 7518 that a Ziti controller may use, by the kind of its key.
fn algorithm(name: &str) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match name {
        "ES256" => &ECDSA_P256_SHA256_FIXED,
        "ES384" => &ECDSA_P384_SHA384_FIXED,
        "ES512" => &ECDSA_P521_SHA512_FIXED,
        "RS256" => &RSA_PKCS1_2048_8192_SHA256,
        "RS384" => &RSA_PKCS1_2048_8192_SHA384,
        "RS512" => &RSA_PKCS1_2048_8192_SHA512,
        "PS256" => &RSA_PSS_2048_8192_SHA256,
        "PS384" => &RSA_PSS_2048_8192_SHA384,
        "PS512" => &RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    /// A certificate and a token that its key signed, under a header of the caller's choice.
    fn signed(algorithm: &str) -> (CertificateDer<'static>, String) {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().clone();
        let header = format!(r#"{{"alg":"{algorithm}"}}"#);
        let claims = r#"{"iss":"https://localhost","sub":"r","jti":"t","em":"erott"}"#;
        let message = [header.as_str(), claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        let message = message.join(".");
        let signer =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.serialized_der());
        let signature = signer
            .unwrap()
            .sign(&SystemRandom::new(), message.as_bytes())
            .unwrap();
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
        (certificate, token)
    }

    #[test]
    fn accepts_the_issuer_and_nobody_else() {
        let (certificate, token) = signed("ES256");
        let token = EnrollmentToken::parse(&token).unwrap();
        assert_eq!(verify(&token, &certificate), Ok(()));
        let (other, _) = signed("ES256");
        assert_eq!(verify(&token, &other), Err(Refusal::Mismatch));
    }

    #[test]
    fn refuses_tokens_that_are_not_signed() {
        for name in ["none", "HS256", "es256"] {
            let (certificate, token) = signed(name);
            let token = EnrollmentToken::parse(&token).unwrap();
            assert_eq!(
                verify(&token, &certificate),
                Err(Refusal::Algorithm),
                "{name}"
            );
        }
    }

    #[test]
    fn the_kind_of_the_key_counts() {
        let (certificate, token) = signed("RS256");
        let token = EnrollmentToken::parse(&token).unwrap();
        assert_eq!(verify(&token, &certificate), Err(Refusal::Mismatch));
    }
}
