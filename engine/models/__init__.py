"""Models, written once for every parallel plan: `params` describes their parameters without torch, `gpt` computes."""
